"""What the course replaces or calls inside other packages, beyond their public interfaces: a module for each package.

A `Hook` names a place and what the course cannot do without it. Where a version has moved it, `Changed` says both in a
sentence, which is what `kp doctor` and a learner's verdict show.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from warpcheck import packages, patching

__all__ = ["Attribute", "Changed", "Hook", "declared"]

_CALLED = {"triton": "Triton", "cutlass": "CuTe DSL", "torch": "PyTorch", "jax": "JAX"}


class Changed(Exception):
    """This version of a package no longer has what the course hooks. The message is a sentence."""


@dataclass(frozen=True)
class Hook:
    """A function, a class or an object of a module. takes: the parameters that it is called with, by name.

    lost: what the course cannot do without it, as a clause.
    """

    module: str
    name: str
    lost: str
    takes: tuple[str, ...] = ()

    def get(self) -> Any:
        """What is there. Raises Changed."""
        found = getattr(self.owner(), self._last, self)
        if found is self:
            raise self._gone()
        if lacking := next((one for one in self.takes if one not in _parameters(found, self.takes)), ""):
            raise self._changed(f"has a {self.module}.{self.name} that no longer takes {lacking}")
        return found

    def replace(self, stand_in: Any) -> None:
        """Put something in its place, until the scope of `warpcheck.patching` ends that is entered, if one is."""
        patching.replace(self.owner(), self._last, stand_in)

    def owner(self) -> Any:
        """The module or class that it is in. Raises Changed, and ImportError where the package is not installed."""
        try:
            owner: Any = importlib.import_module(self.module)
            for name in self.name.split(".")[:-1]:
                owner = getattr(owner, name)
        except ModuleNotFoundError as error:
            if error.name == self._package:
                raise
            raise self._gone() from error
        except AttributeError as error:
            raise self._gone() from error
        return owner

    @property
    def _package(self) -> str:
        return self.module.partition(".")[0]

    @property
    def _last(self) -> str:
        return self.name.rpartition(".")[2]

    def sentence(self, what: str) -> str:
        """What the package does now, and what the course cannot do for it."""
        version = packages.version(packages.distribution_of(self._package))
        return f"{_CALLED[self._package]} {version} {what}: {self.lost}"

    def _gone(self) -> Changed:
        return self._changed(f"no longer has {self.module}.{self.name}")

    def _changed(self, what: str) -> Changed:
        return Changed(self.sentence(what))


class Attribute(Hook):
    """What each instance of a class has once it is made."""

    def of(self, instance: Any) -> Any:
        """Its value. Raises Changed."""
        try:
            return getattr(instance, self._last)
        except AttributeError as error:
            raise self._gone() from error


def declared(module: ModuleType) -> dict[str, Hook]:
    """The hooks of a module by the names of its variables."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Hook)}


def _parameters(function: Any, unknown: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a function or a class by name; `unknown` for compiled code, which does not tell them."""
    try:
        return tuple(inspect.signature(function).parameters)
    except ValueError:
        return unknown
