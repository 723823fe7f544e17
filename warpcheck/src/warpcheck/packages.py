"""The distributions that the front ends need, and the command that installs one."""

from __future__ import annotations

import re
import sys
from importlib import metadata

__all__ = ["distribution_of", "install_command", "missing", "version"]

_DISTRIBUTIONS = {
    "cuda": "cuda-bindings",
    "cuda.core": "cuda-core",
    "cutlass": "nvidia-cutlass-dsl",
    "cutlass_library": "nvidia-cutlass",
}
"""Distributions whose name differs from their module; the longest module name that fits counts."""


def distribution_of(module: str) -> str:
    """Return the distribution to install for a module such as "cuda.bindings.nvrtc"."""
    name = module
    while name not in _DISTRIBUTIONS and "." in name:
        name = name.rpartition(".")[0]
    return _DISTRIBUTIONS.get(name, name)


def version(*distributions: str) -> str:
    """Return the version of the first of these that is installed, or "missing"."""
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return "missing"


def missing(module: str) -> str:
    """Say that a module is not installed, and how to install it."""
    distribution = distribution_of(module)
    return f"{distribution} is not installed: {install_command(distribution)}"


def install_command(distribution: str) -> str:
    """Return the command that installs a distribution in the versions that one of warpcheck's extras requires."""
    try:
        requirements = metadata.requires("warpcheck") or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        requirements = []
    name = re.compile(rf"{re.escape(distribution)}(?![\w.-])")
    requirement = next((text.partition(";")[0].strip() for text in requirements if name.match(text)), distribution)
    return f"{sys.executable} -m pip install '{requirement}'"
