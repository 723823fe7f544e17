"""The distributions that the front ends need, and the command that installs one."""

from __future__ import annotations

import platform
import re
import sys
from importlib import metadata

__all__ = ["distribution_of", "install_command", "matching_requirements", "missing", "version"]

# Distributions whose name differs from their module; the longest module name that fits counts.
_DISTRIBUTIONS = {
    "cuda": "cuda-bindings",
    "cuda.core": "cuda-core",
    "cutlass": "nvidia-cutlass-dsl",
    "cutlass_library": "nvidia-cutlass",
}

_PLATFORM_MACHINE = re.compile(r"platform_machine\s*([!=]=)\s*['\"](\w+)")


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
    requirements = matching_requirements(distribution, "warpcheck")
    wanted = next((requirement.partition(";")[0].strip() for requirement in requirements), distribution)
    return f"{sys.executable} -m pip install '{wanted}'"


def matching_requirements(distribution: str, *requirers: str) -> list[str]:
    """Return what the requirers, or their extras, require of a distribution on this machine, with its markers."""
    name = re.compile(rf"{re.escape(distribution)}(?![\w.-])")
    required = [requirement for requirer in requirers for requirement in _required_by(requirer)]
    return [requirement for requirement in required if name.match(requirement) and _is_for_this_machine(requirement)]


def _required_by(distribution: str) -> list[str]:
    try:
        return metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return []


def _is_for_this_machine(requirement: str) -> bool:
    marker = _PLATFORM_MACHINE.search(requirement)
    return marker is None or (marker[1] == "==") == (marker[2] == platform.machine())
