"""Find the function that a submission defines, adapt it to the grader's calls, and check its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelpath import words
from kernelpath.course import registry
from kernelpath.course.errors import SolutionUnavailable
from kernelpath.course.registry import ExerciseRef
from kernelpath.course.spec import Exercise
from kernelpath.work.exception_findings import EntryError
from kernelpath.work.tamper_check import SubmissionThread


def import_lane(lane: str, device: str) -> None:
    """Import the compiler of a lane, before the process gives anything up. Raises ImportError."""
    if lane == "cuda":
        from warpcheck.frontends import cuda  # noqa: F401
    if lane == "cute":
        from warpcheck.frontends import cute  # noqa: F401
    if lane == "triton":
        from warpcheck.frontends import triton

        triton.activate(device)


def required_language(exercise: Exercise | None, lane: str) -> str:
    """Return the language that an exercise's kernels must be written in; empty where that is CUDA C++."""
    is_kernel = exercise is not None and exercise.kind in ("kernel", "repair")
    return words.LANES[lane] if is_kernel and lane in ("triton", "cute") else ""


def load_baseline(item: ExerciseRef, exercise: Exercise) -> None:
    """Load the baseline, and read its CUDA C++, before the process gives up access to the checkout."""
    sources = [item.declaration.with_suffix(".cu")]
    if isinstance(exercise.baseline, registry.Solution):
        with suppress(SolutionUnavailable):  # reported when timing starts
            exercise.baseline.load()
            sources.append(registry.find(exercise.baseline.name, item.root).reference.with_suffix(".cu"))
    for source in filter(Path.is_file, sources):
        from warpcheck.frontends import cuda

        cuda.read_ahead(source)


def find_entry(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return the function of that name. Raise EntryError, which names the functions that there are."""
    entry = getattr(module, name, None)
    if callable(entry):
        return entry  # type: ignore[no-any-return]
    functions = [
        key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == "submission"
    ]
    defined = f"it defines {', '.join(functions)}" if functions else "it defines no function"
    raise EntryError(f"the file defines no function {name}; {defined}")


def adapt_entry(entry: Callable[..., Any], exercise: Exercise | None, lane: str) -> Callable[..., Any]:
    """Return a function that takes the problem's inputs and returns its outputs.

    That is the entry itself, except for an operator, whose gradients are outputs as well, and for JAX, whose arrays
    become tensors. This imports what the adapted entry needs, and the module for matrix products on the PTX machine.
    """
    if exercise is not None and exercise.products:
        from kernelpath.work import products  # noqa: F401
    if lane == "pallas":
        from kernelpath.work import pallas

        return pallas.wrap_jax_entry(entry)
    if exercise is None or exercise.kind not in ("operator", "library"):
        return entry
    from kernelpath.work import operators

    if exercise.library is not None:
        from kernelpath.work import package  # noqa: F401
    return operators.with_gradient(entry, exercise.gradients_of)


def install_package(thread: SubmissionThread, exercise: Exercise | None, file: Path) -> None:
    """Build and install the package beside the file, if the exercise is about a package."""
    if exercise is not None and exercise.library is not None:
        from kernelpath.work import package

        thread.call(package.build_and_install, exercise.library, file.with_suffix(""))


def examine_package(thread: SubmissionThread, exercise: Exercise, device: torch.device) -> None:
    """Check an installed package against its contract, and its tests against planted faults."""
    if exercise.library is not None:
        from kernelpath.work import package

        thread.call(package.check_contract, exercise.library, device)


def check_signature(entry: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Raise EntryError unless the entry can be called with these arguments."""
    try:
        inspect.signature(entry).bind(*arguments)
    except TypeError as error:
        name = getattr(entry, "__name__", "the entry")
        raise EntryError(f"{name} is called with {len(arguments)} arguments: {error}") from error
    # A function in C may have no signature. The call then shows whether its arguments fit.
    except ValueError:
        return
