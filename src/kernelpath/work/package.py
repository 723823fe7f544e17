"""A package of operators, in the submission's own process: built as a wheel, installed, and held against its contract.

The project is built from a copy by its backend's hooks (PEP 517), without a network, and the wheel is unpacked into a
folder that is first on sys.path: a wheel of Python alone needs no more (PEP 427). The project itself is not there.
Importing this imports setuptools and pytest.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import io
import math
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from email.parser import Parser
from pathlib import Path
from shutil import copytree
from types import ModuleType
from typing import Any

import setuptools.build_meta  # type: ignore[import-untyped]
import tomlkit
import torch
from setuptools.command import (  # type: ignore[import-untyped]  # noqa: F401  what a build imports
    bdist_wheel,
    build_py,
    dist_info,
    egg_info,
)
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelpath.course.library import Library, Promise, Refusal
from kernelpath.work import own_tests
from kernelpath.work.exception_findings import PROJECTS, EntryError, WrongOperator, innermost

_TOML = "pyproject.toml"
_BACKEND = "setuptools.build_meta"

_SETTINGS: Mapping[str, Callable[[], Any]] = {
    "torch.get_default_dtype()": torch.get_default_dtype,
    "torch.get_default_device()": torch.get_default_device,
    "torch.is_grad_enabled()": torch.is_grad_enabled,
    "torch.backends.cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled,
    "the state of torch's random numbers": lambda: hash(torch.get_rng_state().numpy().tobytes()),
}
"""What an import must leave as it is."""

_installed: dict[str, tuple[Path, Path]] = {}
"""By the package's name: the copy of its project, and where its wheel was unpacked."""


def build_and_install(library: Library, project: Path) -> None:
    """Build the wheel of a project and put what it holds on the path; import the package once.

    Raises EntryError where there is no wheel, or another one than the contract says.
    """
    if not (project / "pyproject.toml").is_file():
        raise EntryError(f"there is no {project.name}/pyproject.toml, which says how the wheel is built")
    copy, built, fresh = (Path(tempfile.mkdtemp(prefix=name)) for name in ("project-", "wheel-", "fresh-"))
    copytree(project, copy, dirs_exist_ok=True)
    with zipfile.ZipFile(_built(copy, built)) as wheel:
        wheel.extractall(fresh)
    if library.name not in _top_level(fresh):
        installed = ", ".join(sorted(_top_level(fresh))) or "nothing"
        raise EntryError(f"the wheel installs {installed}, not {library.name}", _TOML)
    site = Path(tempfile.gettempdir()) / f"site-{_digest(fresh)}"  # kernels tell the path: it is that of the twin's
    with contextlib.suppress(OSError):
        fresh.rename(site)
    _installed[library.name] = (copy, site)
    PROJECTS[:] = copy, site / library.name
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    before = {name: setting() for name, setting in _SETTINGS.items()}
    importlib.import_module(library.name)
    for name, setting in _SETTINGS.items():
        if setting() != before[name]:
            raise EntryError(f"importing {library.name} changes {name}, for the whole process that uses it")


def _digest(folder: Path) -> str:
    """Of the files in it, but for the wheel's own record."""
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        found.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _built(project: Path, into: Path) -> Path:
    """The wheel. Raises EntryError with what the backend says."""
    try:
        declared = tomlkit.parse((project / "pyproject.toml").read_text(encoding="utf-8")).unwrap()
    except (ValueError, OSError) as error:
        raise EntryError(f"pyproject.toml: {error}", _TOML) from error
    backend = declared.get("build-system", {}).get("build-backend")
    if backend != _BACKEND:
        raise EntryError(f"pyproject.toml: the build-backend is {backend!r}; here it has to be {_BACKEND!r}", _TOML)
    said, here, arguments = io.StringIO(), os.getcwd(), list(sys.argv)
    os.chdir(project)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return into / str(setuptools.build_meta.build_wheel(str(into)))
    except (Exception, SystemExit) as error:
        last = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
        raise EntryError(f"the wheel cannot be built: {last}", _TOML) from error
    finally:
        os.chdir(here)
        sys.argv[:] = arguments


def _top_level(site: Path) -> set[str]:
    """The packages that a wheel installs."""
    installed = (path.name for path in site.iterdir() if path.suffix != ".dist-info" and path.name != "__pycache__")
    return {name.removesuffix(".py") for name in installed}


def _holds_no_more(library: Library, site: Path) -> None:
    """Raise WrongOperator for packages that the wheel must not install, and for metadata that lack a requirement."""
    (metadata,) = site.glob("*.dist-info/METADATA")
    if others := sorted(_top_level(site) - {library.name}):
        cause = f"the wheel installs {others[0]} beside {library.name}, for everybody who installs it"
        raise WrongOperator(cause, _TOML)
    told = Parser().parsestr(metadata.read_text(encoding="utf-8"))
    needs = [requirement.lower() for requirement in told.get_all("Requires-Dist", [])]
    for wanted in library.requires:
        if not any(one.startswith(wanted) for one in needs):
            cause = f"the wheel does not require {wanted}: add it to the dependencies in pyproject.toml"
            raise WrongOperator(cause, _TOML)


def check_contract(library: Library, device: torch.device) -> None:
    """Raise WrongOperator unless the package refuses what it must, and its tests and benchmark are worth their name."""
    copy, site = _installed[library.name]
    package = importlib.import_module(library.name)
    for name in [name for name in sys.modules if name.partition(".")[0] == library.name]:
        file = getattr(sys.modules[name], "__file__", None)
        if file and not Path(file).resolve().is_relative_to(site.resolve()):
            raise WrongOperator(f"{name} was imported from {Path(file).name} of the project, not from the wheel")
    _holds_no_more(library, site)
    for refusal in library.refusals:
        _refused(package, refusal, device)
    for promise in library.promises:
        _kept(package, promise, device)
    for name, make in library.strided.items():
        _fake_has_strides(package, name, make(device))
    _measures(package, library)
    own_tests.check_own_tests(package, library, copy)


def _refused(package: ModuleType, refusal: Refusal, device: torch.device) -> None:
    told = f"{package.__name__}.{refusal.function} with {refusal.why}"
    wanted = f"a {refusal.error.__name__} that names {refusal.argument}"
    function = getattr(package, refusal.function)
    place = _place(function)
    try:
        function(*refusal.make(device))
    except Exception as error:
        said = _first_line(error)
        if type(error) is not refusal.error:
            cause = f"{told} raises {type(error).__name__}: {said}; it must be {wanted}"
            raise WrongOperator(cause, *innermost(error, place)) from error
        if refusal.argument not in said:
            raise WrongOperator(f"{told} says {said!r}; it must be {wanted}", *innermost(error, place)) from error
    else:
        raise WrongOperator(f"{told} returns a result; it must raise {wanted}", *place)


def _fake_has_strides(package: ModuleType, name: str, given: Sequence[Any]) -> None:
    """Raise WrongOperator unless the fake implementation gives the strides that outputs have for these arguments."""
    function = getattr(package, name)
    try:
        with FakeTensorMode() as mode:
            fake = function(*(mode.from_tensor(one) if isinstance(one, torch.Tensor) else one for one in given))
    except Exception as error:
        cause = f"{package.__name__}.{name} with fake tensors raises {type(error).__name__}: {_first_line(error)}"
        raise WrongOperator(cause, *innermost(error, _place(function))) from error
    made = function(*given)
    outputs, fakes = (list(one) if isinstance(one, tuple) else [one] for one in (made, fake))
    for output, other in zip(outputs, fakes, strict=True):
        if output.stride() != other.stride():
            told = f"{package.__name__}.{name} of transposed matrices: the fake implementation gives an output with"
            cause = f"{told} strides {other.stride()}, the kernel one with {output.stride()}; torch.empty_like keeps"
            raise WrongOperator(f"{cause} those of its argument, torch.empty does not", *_place(function))


def _place(function: Any) -> tuple[str, int]:
    """Where a function is defined: its file and its line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


def _kept(package: ModuleType, promise: Promise, device: torch.device) -> None:
    given = promise.make(device)
    wide = [one.double() if isinstance(one, torch.Tensor) else one for one in given]
    told = f"{package.__name__}.{promise.function} with {promise.why}"
    function = getattr(package, promise.function)
    place = _place(function)
    try:
        made = function(*given)
    except Exception as error:
        cause = f"{told} raises {type(error).__name__}: {_first_line(error)}"
        raise WrongOperator(cause, *innermost(error, place)) from error
    expected = promise.expected(*wide)
    for one, wanted in zip(made if isinstance(made, tuple) else (made,), expected, strict=False):
        if one.shape != wanted.shape:
            raise WrongOperator(f"{told} gives the shape {tuple(one.shape)}, not {tuple(wanted.shape)}", *place)
        if not torch.allclose(one.double(), wanted, rtol=1e-4, atol=1e-4):
            raise WrongOperator(f"{told} gives wrong values", *place)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


_CLOCKED = ("seconds", "baseline_seconds")


def _measures(package: ModuleType, library: Library) -> None:
    """Whether the package's benchmark tells seconds that a clock has shown, and the bytes that must be moved."""
    measure = getattr(importlib.import_module(f"{package.__name__}.benchmark"), "measure", None)
    if not callable(measure):
        raise WrongOperator(f"{package.__name__}.benchmark has no function measure", "benchmark.py")
    first, again = ([_measured(package, library, measure, function) for function in library.benchmark] for _ in "12")
    if first == again:
        told = f"{package.__name__}.benchmark.measure gives the same seconds once more; no clock does"
        raise WrongOperator(told, *_place(measure))


def _measured(
    package: ModuleType, library: Library, measure: Callable[..., Mapping[str, float]], function: str
) -> list[float]:
    """The seconds that a benchmark tells of a function."""
    sizes, due = library.benchmark[function]
    of = f"{package.__name__}.benchmark.measure({function!r}, {', '.join(f'{k}={v}' for k, v in sizes.items())})"
    place = _place(measure)
    begin = time.perf_counter()
    told = measure(function, **sizes)
    passed = time.perf_counter() - begin
    if not isinstance(told, dict):
        raise WrongOperator(f"{of} returns {told!r}; it must return a dict", *place)
    for key in _CLOCKED:
        if not 0 < told.get(key, math.nan) < passed:
            raise WrongOperator(f"{of} gives {key}={told.get(key)}, and returns after {passed:.3g} s", *place)
    if told.get("bytes") != due:
        raise WrongOperator(f"{of} gives bytes={told.get('bytes')}; read once and written once it is {due}", *place)
    return [told[key] for key in _CLOCKED]
