"""The packages that lanes need: whether they are there, and the one command that installs what is missing.

A missing package costs its lane, never the others.
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
from warpcheck.packages import version as version


@dataclass(frozen=True)
class Tried:
    """The lowest and the newest version that the course was run with. Those between them are not all tried."""

    lowest: str
    newest: str

    def covers(self, version: str) -> bool:
        """Whether it lies between them, as far as major and minor version go."""
        return _minor(self.lowest) <= _minor(version) <= _minor(self.newest)

    @property
    def range(self) -> str:
        """The versions that it covers from the lowest on, for pip: ">=2.11.0,<2.16"."""
        major, minor = _minor(self.newest)
        return f">={self.lowest},<{major}.{minor + 1}"


TRIED: Mapping[str, Tried] = {
    "python": Tried("3.10", "3.13"),
    "torch": Tried("2.10.0" if platform.machine() == "aarch64" else "2.11.0", "2.15.0"),
    "triton": Tried("3.6.0", "3.9.0"),
    "cuda-bindings": Tried("13.3.1", "13.5.0"),
    "nvidia-cuda-nvrtc": Tried("13.0.88", "13.5.37"),
    "nvidia-cutlass-dsl": Tried("4.8.1", "4.8.1"),
}
"""By package. `make test-oldest` and `make test-newest` try a set again; pyproject.toml says what is installed."""

LANES = {"cuda": ("cuda.bindings",), "triton": ("triton",), "cute": ("cutlass", "cuda.bindings"), "pallas": ("jax",)}
"""The modules that each lane imports besides torch, numpy and the PTX machine's."""

_PYTHON = re.compile(r"python_version\s*>=\s*['\"]([\d.]+)")
"""The lowest Python of a requirement."""

_MACHINE = re.compile(r"platform_machine\s*([!=]=)\s*['\"](\w+)")


def lacking(lane: str) -> str:
    """Why a lane cannot run, with the command that installs what it lacks; empty where nothing is missing."""
    return next((missing(module) for module in LANES.get(lane, ()) if not _installed(module)), "")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def sources(module: str) -> list[Path]:
    """Return where a module is installed: its folders, or its file and the bytecode of it. Nothing if it is not."""
    spec = importlib.util.find_spec(module) if _installed(module) else None
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(folder) for folder in spec.submodule_search_locations]
    origin = spec.origin if spec.has_location else None
    return [Path(origin), Path(importlib.util.cache_from_source(origin))] if origin else []


def missing(module: str) -> str:
    """The reason why something that needs a module cannot run: "triton is not installed: python -m pip install ..."."""
    distribution = distribution_of(module)
    return f"{distribution} is not installed: {install(distribution)}"


def install(distribution: str) -> str:
    """The command that installs a package, in the versions that kernelpath requires where it requires it."""
    required = [*_required_by("kernelpath"), *_required_by("warpcheck")]
    named = re.compile(rf"{re.escape(distribution)}(?![\w.-])")
    found = [one for one in required if named.match(one) and _for_this_machine(one)]
    wanted = next((one.partition(";")[0].strip() for one in found), distribution)
    needs = next((bound[1] for one in found if (bound := _PYTHON.search(one))), TRIED["python"].lowest)
    return _pip([wanted], _minor(platform.python_version()) >= _minor(needs))


def untried() -> Iterator[str]:
    """What is installed in a version that the course was not run with, beside the versions that it was."""
    found = versions()
    for package, tried in TRIED.items():
        if package in found and not tried.covers(found[package]):
            yield f"{package} {found[package]} (tried: {tried.lowest} to {tried.newest})"


def _required_by(distribution: str) -> list[str]:
    """Return the requirements of a distribution with those of its extras, or nothing if it is not installed."""
    try:
        return metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return []


def _for_this_machine(requirement: str) -> bool:
    found = _MACHINE.search(requirement)
    return found is None or (found[1] == "==") == (found[2] == platform.machine())


def install_tried() -> str:
    """The command that installs versions that were tried, Python too where it was not.

    It names ranges: torch's builds for CUDA ask for one version of Triton and of NVRTC each.
    """
    wanted = [f"{package}{tried.range}" for package, tried in TRIED.items() if package != "python"]
    return _pip(wanted, TRIED["python"].covers(platform.python_version()))


def _pip(wanted: Iterable[str], here: bool) -> str:
    """The command that installs these, here or with kernelpath in a new environment of a Python that was tried."""
    quoted = " ".join(f"'{one}'" for one in wanted)
    if here:
        return f"{sys.executable} -m pip install {quoted}"
    python = f"python{TRIED['python'].newest}"
    return f"{python} -m venv kernelpath-env && kernelpath-env/bin/pip install {_ourselves()} {quoted}"


def _ourselves() -> str:
    """What pip takes to install kernelpath again from where it came from."""
    try:
        origin = json.loads(metadata.distribution("kernelpath").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        origin = {}
    editable = "--editable " if origin.get("dir_info", {}).get("editable") else ""
    return f"{editable}'{origin['url']}'" if "url" in origin else "kernelpath"


def constraints(which: Literal["lowest", "newest"]) -> str:
    """A constraints file for pip, with which it installs the lowest or the newest versions that were tried."""
    exact = which == "lowest"
    pinned = {name: f"=={tried.lowest}" if exact else tried.range for name, tried in TRIED.items() if name != "python"}
    return "".join(f"{name}{versions}\n" for name, versions in pinned.items())


def _minor(version: str) -> tuple[int, int]:
    major, minor, *_ = (*map(int, re.findall(r"\d+", version)), 0, 0)
    return major, minor


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
