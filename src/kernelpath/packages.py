"""Determine whether the packages that lanes need are installed, and the one command that installs a missing package.

A missing package disables its lane, never the others.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

from warpcheck.packages import distribution_of as distribution_of
from warpcheck.packages import matching_requirements
from warpcheck.packages import version as version


@dataclass(frozen=True)
class TriedVersions:
    """The lowest and the newest version with which the course was run. The versions between them were not all tried."""

    lowest: str
    newest: str

    def covers(self, version: str) -> bool:
        """Return whether a version is between them, as far as major and minor version go."""
        return _minor(self.lowest) <= _minor(version) <= _minor(self.newest)

    @property
    def range(self) -> str:
        """The versions from the lowest to the newest minor version, for pip: ">=2.11.0,<2.16"."""
        major, minor = _minor(self.newest)
        return f">={self.lowest},<{major}.{minor + 1}"


# The tried versions by package.
#
# `make test-oldest` and `make test-newest` try a set again; pyproject.toml says what is installed.
TRIED_VERSIONS: Mapping[str, TriedVersions] = {
    "python": TriedVersions("3.10", "3.13"),
    "torch": TriedVersions("2.10.0" if platform.machine() == "aarch64" else "2.11.0", "2.15.0"),
    "triton": TriedVersions("3.6.0", "3.9.0"),
    "cuda-bindings": TriedVersions("13.3.1", "13.5.0"),
    "nvidia-cuda-nvrtc": TriedVersions("13.0.88", "13.5.37"),
    "nvidia-cutlass-dsl": TriedVersions("4.8.1", "4.8.1"),
}

# The modules that each lane imports besides torch, numpy and the PTX machine's.
LANES = {"cuda": ("cuda.bindings",), "triton": ("triton",), "cute": ("cutlass", "cuda.bindings"), "pallas": ("jax",)}

# Matches the extra that a requirement belongs to.
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)")

# Matches the lowest Python version of a requirement.
_PYTHON = re.compile(r"python_version\s*>=\s*['\"]([\d.]+)")


def lacking(lane: str) -> str:
    """Return why a lane cannot run, with the command that installs the missing package; empty where nothing is
    missing.
    """
    return next((missing(module) for module in LANES.get(lane, ()) if not _installed(module)), "")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def sources(module: str) -> list[Path]:
    """Return the folders in which a module is installed, or its file and the file's bytecode; empty if it is not
    installed.
    """
    spec = importlib.util.find_spec(module) if _installed(module) else None
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(folder) for folder in spec.submodule_search_locations]
    origin = spec.origin if spec.has_location else None
    return [Path(origin), Path(importlib.util.cache_from_source(origin))] if origin else []


def missing(module: str) -> str:
    """Return why a module cannot be used: "triton is not installed: python -m pip install ..."."""
    distribution = distribution_of(module)
    return f"{distribution} is not installed: {install(distribution)}"


def missing_extra(module: str) -> str:
    """Return why a module cannot be used and the command that installs the extra of kernelpath that requires it.

    Empty if no extra requires the module's distribution.
    """
    distribution = distribution_of(module).lower()
    extras = {_extra_of(requirement) for requirement in matching_requirements(distribution, "kernelpath")} - {""}
    if not extras:
        return ""
    # The others of the extra may be missing too: a command that stopped at each package in turn would help nobody.
    required = [text for text in metadata.requires("kernelpath") or [] if _extra_of(text) in extras]
    requirements = [text.partition(";")[0].strip() for text in required]
    return f"{distribution} is not installed: {_pip_command(requirements, in_this_environment=True)}"


def _extra_of(requirement: str) -> str:
    """Return the extra that a requirement belongs to; empty for those of the core."""
    match = _EXTRA.search(requirement)
    return match[1] if match else ""


def install(distribution: str) -> str:
    """Return the command that installs a package, in the versions that kernelpath requires, if it requires the
    package.
    """
    matching = matching_requirements(distribution, "kernelpath", "warpcheck")
    to_install = next((requirement.partition(";")[0].strip() for requirement in matching), distribution)
    bounds = (bound[1] for requirement in matching if (bound := _PYTHON.search(requirement)))
    lowest_python = next(bounds, TRIED_VERSIONS["python"].lowest)
    return _pip_command([to_install], _minor(platform.python_version()) >= _minor(lowest_python))


def untried() -> Iterator[str]:
    """Yield each package in a version with which the course was not run, with the tried versions."""
    installed = versions()
    for package, tried in TRIED_VERSIONS.items():
        if package in installed and not tried.covers(installed[package]):
            yield f"{package} {installed[package]} (tried: {tried.lowest} to {tried.newest})"


def install_tried() -> str:
    """Return the command that installs tried versions, and a tried Python where this one was not tried.

    It names ranges, since each build of torch for CUDA requires one version of Triton and of NVRTC.
    """
    requirements = [f"{package}{tried.range}" for package, tried in TRIED_VERSIONS.items() if package != "python"]
    return _pip_command(requirements, TRIED_VERSIONS["python"].covers(platform.python_version()))


def _pip_command(requirements: Iterable[str], in_this_environment: bool) -> str:
    """Return the command that installs requirements, here or with kernelpath in a new environment of a tried Python."""
    quoted = " ".join(f"'{requirement}'" for requirement in requirements)
    if in_this_environment:
        return f"{sys.executable} -m pip install {quoted}"
    python = f"python{TRIED_VERSIONS['python'].newest}"
    return f"{python} -m venv kernelpath-env && kernelpath-env/bin/pip install {_kernelpath_requirement()} {quoted}"


def _kernelpath_requirement() -> str:
    """Return the argument for pip that installs kernelpath again from its origin."""
    try:
        origin = json.loads(metadata.distribution("kernelpath").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        origin = {}
    if "url" not in origin:
        return "'kernelpath[all]'"
    if origin.get("dir_info", {}).get("editable"):
        return f"--editable '{origin['url']}[all]'"
    return f"'kernelpath[all] @ {origin['url']}'"


def constraints(which: Literal["lowest", "newest"]) -> str:
    """Return a constraints file for pip that selects the lowest or the newest tried versions."""
    exact = which == "lowest"
    pinned = {
        name: f"=={tried.lowest}" if exact else tried.range
        for name, tried in TRIED_VERSIONS.items()
        if name != "python"
    }
    return "".join(f"{name}{versions}\n" for name, versions in pinned.items())


def _minor(version: str) -> tuple[int, int]:
    major, minor, *_ = (*map(int, re.findall(r"\d+", version)), 0, 0)
    return major, minor


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that a verdict may depend on."""
    installed = {"python": platform.python_version()}
    for package in ("kernelpath", "torch", "triton", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cutlass-dsl"):
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed
