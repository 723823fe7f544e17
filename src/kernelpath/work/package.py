"""Build a package of operators as a wheel in the submission's own process, install it, and check it against its
contract.

The project is built from a copy by its backend's hooks (PEP 517), without a network. The wheel is unpacked to a folder
that is first on sys.path, which is enough for a wheel with Python files alone (PEP 427). The project itself is not on
the path. Importing this imports setuptools and pytest.
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

# The settings that an import must not change.
_SETTINGS: Mapping[str, Callable[[], Any]] = {
    "torch.get_default_dtype()": torch.get_default_dtype,
    "torch.get_default_device()": torch.get_default_device,
    "torch.is_grad_enabled()": torch.is_grad_enabled,
    "torch.backends.cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled,
    "the state of torch's random numbers": lambda: hash(torch.get_rng_state().numpy().tobytes()),
}

# The copy of a project and the folder of its unpacked wheel, by the package's name.
_installed: dict[str, tuple[Path, Path]] = {}


def build_and_install(library: Library, project: Path) -> None:
    """Build the wheel of a project, put its contents on the path, and import the package once.

    Raises:
        EntryError: There is no wheel, or its contents are not those of the contract.
    """
    if not (project / "pyproject.toml").is_file():
        raise EntryError(f"there is no {project.name}/pyproject.toml, which says how the wheel is built")
    copy, wheel_folder, unpacked = (Path(tempfile.mkdtemp(prefix=name)) for name in ("project-", "wheel-", "fresh-"))
    # setuptools writes build/ and egg-info beside the sources, and the submission's folder is only to be read.
    copytree(project, copy, dirs_exist_ok=True)
    with zipfile.ZipFile(_build_wheel(copy, wheel_folder)) as wheel:
        wheel.extractall(unpacked)
    if library.name not in _top_level(unpacked):
        installed = ", ".join(sorted(_top_level(unpacked))) or "nothing"
        raise EntryError(f"the wheel installs {installed}, not {library.name}", _TOML)
    # Kernels depend on the path of their source. The path follows from the contents, so that two processes with the
    # same wheel launch the same kernels.
    site = Path(tempfile.gettempdir()) / f"site-{_digest(unpacked)}"
    with contextlib.suppress(OSError):
        # Another process of this submission may have installed the same wheel. Then the rename fails with ENOTEMPTY.
        unpacked.rename(site)
    _installed[library.name] = (copy, site)
    PROJECTS[:] = copy, site / library.name
    # Before everything else, so that the wheel is imported and not the project folder that it was built from.
    sys.path.insert(0, str(site))
    # The import system remembers the contents of folders by their time of change, which is too coarse for a new folder.
    importlib.invalidate_caches()
    before = {name: setting() for name, setting in _SETTINGS.items()}
    importlib.import_module(library.name)
    for name, setting in _SETTINGS.items():
        if setting() != before[name]:
            raise EntryError(f"importing {library.name} changes {name}, for the whole process that uses it")


def _digest(folder: Path) -> str:
    """Return a digest of the Python files below a folder, without the wheel's own metadata."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _build_wheel(project: Path, target: Path) -> Path:
    """Return the wheel, built into the folder `target`. Raise EntryError with the backend's message."""
    try:
        declaration = tomlkit.parse((project / "pyproject.toml").read_text(encoding="utf-8")).unwrap()
    except (ValueError, OSError) as error:
        raise EntryError(f"pyproject.toml: {error}", _TOML) from error
    backend = declaration.get("build-system", {}).get("build-backend")
    if backend != _BACKEND:
        raise EntryError(f"pyproject.toml: the build-backend is {backend!r}; here it has to be {_BACKEND!r}", _TOML)
    output = io.StringIO()
    previous_folder = os.getcwd()
    previous_arguments = list(sys.argv)
    os.chdir(project)  # PEP 517: hooks are called in the project's folder
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            return target / str(setuptools.build_meta.build_wheel(str(target)))
    except (Exception, SystemExit) as error:
        last_line = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
        raise EntryError(f"the wheel cannot be built: {last_line}", _TOML) from error
    finally:
        os.chdir(previous_folder)
        sys.argv[:] = previous_arguments


def _top_level(site: Path) -> set[str]:
    """Return the names of the packages and modules that a wheel installs."""
    installed = (path.name for path in site.iterdir() if path.suffix != ".dist-info" and path.name != "__pycache__")
    return {name.removesuffix(".py") for name in installed}


def _check_wheel(library: Library, site: Path) -> None:
    """Raise WrongOperator for packages that the wheel must not install, and for metadata that lack a requirement."""
    (metadata_file,) = site.glob("*.dist-info/METADATA")
    if extra := sorted(_top_level(site) - {library.name}):
        cause = f"the wheel installs {extra[0]} besides {library.name}, for everyone who installs it"
        raise WrongOperator(cause, _TOML)
    metadata = Parser().parsestr(metadata_file.read_text(encoding="utf-8"))
    declared = [requirement.lower() for requirement in metadata.get_all("Requires-Dist", [])]
    for required in library.requires:
        if not any(requirement.startswith(required) for requirement in declared):
            cause = f"the wheel does not require {required}: add it to the dependencies in pyproject.toml"
            raise WrongOperator(cause, _TOML)


def check_contract(library: Library, device: torch.device) -> None:
    """Raise WrongOperator unless the package keeps its contract, and its tests and its benchmark are meaningful."""
    copy, site = _installed[library.name]
    package = importlib.import_module(library.name)
    for name in [name for name in sys.modules if name.partition(".")[0] == library.name]:
        file = getattr(sys.modules[name], "__file__", None)
        if file and not Path(file).resolve().is_relative_to(site.resolve()):
            raise WrongOperator(f"{name} was imported from {Path(file).name} of the project, not from the wheel")
    _check_wheel(library, site)
    for refusal in library.refusals:
        _check_refusal(package, refusal, device)
    for promise in library.promises:
        _check_promise(package, promise, device)
    for name, make in library.strided.items():
        _check_fake_strides(package, name, make(device))
    _check_benchmark(package, library)
    own_tests.check_own_tests(package, library, copy)


def _check_refusal(package: ModuleType, refusal: Refusal, device: torch.device) -> None:
    """Raise WrongOperator unless a function raises the error that the contract requires for wrong arguments."""
    call = f"{package.__name__}.{refusal.function} with {refusal.why}"
    required = f"a {refusal.error.__name__} that names {refusal.argument}"
    function = getattr(package, refusal.function)
    location = _location(function)
    try:
        function(*refusal.make(device))
    except Exception as error:
        message = _first_line(error)
        if type(error) is not refusal.error:
            cause = f"{call} raises {type(error).__name__}: {message}; it must be {required}"
            raise WrongOperator(cause, *innermost(error, location)) from error
        if refusal.argument not in message:
            cause = f"{call} says {message!r}; it must be {required}"
            raise WrongOperator(cause, *innermost(error, location)) from error
    else:
        raise WrongOperator(f"{call} returns a result; it must raise {required}", *location)


def _check_fake_strides(package: ModuleType, name: str, arguments: Sequence[Any]) -> None:
    """Raise WrongOperator unless the fake implementation returns the strides of the real outputs."""
    function = getattr(package, name)
    try:
        with FakeTensorMode() as mode:
            fake_arguments = (
                mode.from_tensor(argument) if isinstance(argument, torch.Tensor) else argument for argument in arguments
            )
            fake_result = function(*fake_arguments)
    except Exception as error:
        cause = f"{package.__name__}.{name} with fake tensors raises {type(error).__name__}: {_first_line(error)}"
        raise WrongOperator(cause, *innermost(error, _location(function))) from error
    for output, fake in zip(_as_list(function(*arguments)), _as_list(fake_result), strict=True):
        if output.stride() != fake.stride():
            symptom = f"{package.__name__}.{name} of transposed matrices: the fake implementation gives an output with"
            cause = f"{symptom} strides {fake.stride()}, the kernel one with {output.stride()}; torch.empty_like keeps"
            raise WrongOperator(f"{cause} those of its argument, torch.empty does not", *_location(function))


def _as_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def _location(function: Any) -> tuple[str, int]:
    """Return the file and the line in which a function is defined."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


def _check_promise(package: ModuleType, promise: Promise, device: torch.device) -> None:
    """Raise WrongOperator unless a function returns the result that the contract promises."""
    arguments = promise.make(device)
    # The truth is computed in float64 from the very same values, before a function could change them in place.
    float64_arguments = [
        argument.double() if isinstance(argument, torch.Tensor) else argument for argument in arguments
    ]
    call = f"{package.__name__}.{promise.function} with {promise.why}"
    function = getattr(package, promise.function)
    location = _location(function)
    try:
        result = function(*arguments)
    except Exception as error:
        cause = f"{call} raises {type(error).__name__}: {_first_line(error)}"
        raise WrongOperator(cause, *innermost(error, location)) from error
    expected = promise.expected(*float64_arguments)
    for output, truth in zip(_as_list(result), expected, strict=False):
        if output.shape != truth.shape:
            cause = f"{call} gives the shape {tuple(output.shape)}, not {tuple(truth.shape)}"
            raise WrongOperator(cause, *location)
        if not torch.allclose(output.double(), truth, rtol=1e-4, atol=1e-4):
            raise WrongOperator(f"{call} gives wrong values", *location)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


_TIMES = ("seconds", "baseline_seconds")


def _check_benchmark(package: ModuleType, library: Library) -> None:
    """Raise WrongOperator unless the package's benchmark reports measured seconds and the compulsory bytes."""
    measure = getattr(importlib.import_module(f"{package.__name__}.benchmark"), "measure", None)
    if not callable(measure):
        raise WrongOperator(f"{package.__name__}.benchmark has no function measure", "benchmark.py")
    # A benchmark that returns constants, or the table of another machine, is recognized by equal times.
    first_times, second_times = (
        [_measured_seconds(package, library, measure, function) for function in library.benchmark] for _ in range(2)
    )
    if first_times == second_times:
        cause = f"{package.__name__}.benchmark.measure gives the same seconds once more; no clock does"
        raise WrongOperator(cause, *_location(measure))


def _measured_seconds(
    package: ModuleType, library: Library, measure: Callable[..., Mapping[str, float]], function: str
) -> list[float]:
    """Return the seconds that a benchmark reports for a function. Raise WrongOperator where they cannot be true."""
    sizes, compulsory_bytes = library.benchmark[function]
    arguments = ", ".join(f"{name}={value}" for name, value in sizes.items())
    call = f"{package.__name__}.benchmark.measure({function!r}, {arguments})"
    location = _location(measure)
    start = time.perf_counter()
    measured = measure(function, **sizes)
    elapsed = time.perf_counter() - start
    if not isinstance(measured, dict):
        raise WrongOperator(f"{call} returns {measured!r}; it must return a dict", *location)
    for key in _TIMES:
        if not 0 < measured.get(key, math.nan) < elapsed:
            cause = f"{call} gives {key}={measured.get(key)}, and returns after {elapsed:.3g} s"
            raise WrongOperator(cause, *location)
    if measured.get("bytes") != compulsory_bytes:
        cause = f"{call} gives bytes={measured.get('bytes')}; read once and written once it is {compulsory_bytes}"
        raise WrongOperator(cause, *location)
    return [measured[key] for key in _TIMES]
