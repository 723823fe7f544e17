"""Access the internals of other packages that the course replaces or calls, in a module for each package.

A `Hook` names an internal function or class and the feature that depends on it. If a version of the package has moved
it, `Changed` states both in a sentence, which `kp doctor` and a learner's verdict show.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from warpcheck import packages, patching

__all__ = ["Attribute", "Changed", "Hook", "declared_hooks"]

_DISPLAY_NAMES = {"triton": "Triton", "cutlass": "CuTe DSL", "torch": "PyTorch", "jax": "JAX"}


class Changed(Exception):
    """This version of a package lacks an internal that the course hooks. The message is a sentence."""


@dataclass(frozen=True)
class Hook:
    """A function, a class or an object of another package's module.

    Attributes:
        module: The name of the module.
        name: The name in the module, with dots for a member of a class.
        lost: The feature that fails without the hook, as a clause.
        takes: The names of the parameters that the course passes.
    """

    module: str
    name: str
    lost: str
    takes: tuple[str, ...] = ()

    def get(self) -> Any:
        """Return the hooked object. Raises Changed."""
        target = getattr(self.owner(), self._attribute, self)  # `self` marks a missing attribute: None may be a value.
        if target is self:
            raise self._missing_error()
        # A hook without parameters may be an object that is no function, and has no signature.
        parameters = _parameters(target, self.takes) if self.takes else ()
        if lacking := next((name for name in self.takes if name not in parameters), ""):
            raise self._changed(f"has a {self.module}.{self.name} that no longer takes {lacking}")
        return target

    def replace(self, replacement: Any) -> None:
        """Replace the hooked object, until the end of the current `warpcheck.patching` scope if there is one."""
        patching.replace(self.owner(), self._attribute, replacement)

    def owner(self) -> Any:
        """Return the module or class of the hook. Raises Changed, and ImportError if the package is not installed."""
        try:
            owner: Any = importlib.import_module(self.module)
            for name in self.name.split(".")[:-1]:
                owner = getattr(owner, name)
        except ModuleNotFoundError as error:
            # The package itself is not installed: that is no change of the package.
            if error.name == self._package:
                raise
            raise self._missing_error() from error
        except AttributeError as error:
            raise self._missing_error() from error
        return owner

    @property
    def _package(self) -> str:
        return self.module.partition(".")[0]

    @property
    def _attribute(self) -> str:
        return self.name.rpartition(".")[2]

    def sentence(self, change: str) -> str:
        """Describe a change of the package and the feature that fails because of it."""
        version = packages.version(packages.distribution_of(self._package))
        return f"{_DISPLAY_NAMES[self._package]} {version} {change}: {self.lost}"

    def _missing_error(self) -> Changed:
        return self._changed(f"no longer has {self.module}.{self.name}")

    def _changed(self, change: str) -> Changed:
        return Changed(self.sentence(change))


class Attribute(Hook):
    """A hook for an attribute that instances of a class get when they are created."""

    def of(self, instance: Any) -> Any:
        """Return the attribute of an instance. Raises Changed."""
        try:
            return getattr(instance, self._attribute)
        except AttributeError as error:
            raise self._missing_error() from error

    def is_set(self, instance: Any) -> bool:
        """Return whether an instance has the attribute by now."""
        return hasattr(instance, self._attribute)


def declared_hooks(module: ModuleType) -> dict[str, Hook]:
    """Return the hooks of a module by the names of their variables."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Hook)}


def _parameters(function: Any, unknown: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parameters of a function or a class; `unknown` for compiled code without a signature."""
    try:
        return tuple(inspect.signature(function).parameters)
    except ValueError:
        return unknown
