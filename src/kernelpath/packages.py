"""The packages that lanes need: whether they are there, and the one command that installs what is missing.

A missing package costs its lane, never the others.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Tried:
    """The lowest and the newest version that the course was run with. Those between them are not all tried."""

    lowest: str
    newest: str

    def covers(self, version: str) -> bool:
        """Whether it lies between them, as far as major and minor version go."""
        return _minor(self.lowest) <= _minor(version) <= _minor(self.newest)


TRIED: Mapping[str, Tried] = {
    "python": Tried("3.10", "3.12"),
    "torch": Tried("2.10.0" if platform.machine() == "aarch64" else "2.11.0", "2.13.0"),
    "triton": Tried("3.6.0", "3.9.0"),
    "cuda-bindings": Tried("13.3.1", "13.4.4"),
    "nvidia-cuda-nvrtc": Tried("13.0.88", "13.5.37"),
    "nvidia-cutlass-dsl": Tried("4.8.1", "4.8.1"),
}
"""By package. `make test-oldest` and `make test-newest` try a set again; pyproject.toml says what is installed."""

LANES = {"cuda": ("cuda.bindings",), "triton": ("triton",), "cute": ("cutlass", "cuda.bindings"), "pallas": ("jax",)}
"""The modules that each lane imports besides torch, numpy and the PTX machine's."""

_DISTRIBUTIONS = {
    "cuda": "cuda-bindings",
    "cuda.core": "cuda-core",
    "cutlass": "nvidia-cutlass-dsl",
    "cutlass_library": "nvidia-cutlass",
}
"""What to install for modules of another name; the longest that fits counts."""


def lacking(lane: str) -> str:
    """Why a lane cannot run, with the command that installs what it lacks; empty where nothing is missing."""
    return next((missing(module) for module in LANES.get(lane, ()) if not _installed(module)), "")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def folders(module: str) -> list[Path]:
    """Where a module with others inside is installed; nowhere if it is not."""
    spec = importlib.util.find_spec(module) if _installed(module) else None
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def missing(module: str) -> str:
    """The reason why something that needs a module cannot run: "triton is not installed: python -m pip install ..."."""
    distribution = distribution_of(module)
    return f"{distribution} is not installed: {install(distribution)}"


def distribution_of(module: str) -> str:
    """The package to install for a module such as "cuda.bindings.nvrtc"."""
    name = module
    while name not in _DISTRIBUTIONS and "." in name:
        name = name.rpartition(".")[0]
    return _DISTRIBUTIONS.get(name, name)


def install(distribution: str) -> str:
    """The command that installs a package, in the versions that kernelpath requires where it requires it."""
    try:
        required = [requirement.partition(";")[0].strip() for requirement in metadata.requires("kernelpath") or []]
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        required = []
    named = re.compile(rf"{re.escape(distribution)}(?![\w.-])")
    wanted = next((one for one in required if named.match(one)), distribution)
    return f"{sys.executable} -m pip install '{wanted}'"


def version(*distributions: str) -> str:
    """The version of the first of these that is installed; "missing" where none is."""
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return "missing"


def untried() -> Iterator[str]:
    """What is installed in a version that the course was not run with, beside the versions that it was."""
    found = versions()
    for package, tried in TRIED.items():
        if package in found and not tried.covers(found[package]):
            yield f"{package} {found[package]} (tried: {tried.lowest} to {tried.newest})"


def tried_again() -> str:
    """The command that installs the newest versions that were tried."""
    wanted = " ".join(f"'{package}=={tried.newest}'" for package, tried in TRIED.items() if package != "python")
    return f"{sys.executable} -m pip install {wanted}"


def constraints(which: Literal["lowest", "newest"]) -> str:
    """A constraints file for pip: every package in the lowest or in the newest version that was tried."""
    return "".join(f"{name}=={getattr(tried, which)}\n" for name, tried in TRIED.items() if name != "python")


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


@cache
def versions() -> dict[str, str]:
    """Of Python and of the packages that a verdict may depend on; those that are installed."""
    found = {"python": platform.python_version()}
    for package in ("kernelpath", "torch", "triton", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cutlass-dsl"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
