"""The packages that lanes need: whether they are there, and the one command that installs what is missing.

A missing package costs its lane, never the others.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

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
