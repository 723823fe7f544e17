"""The function that a submission defines: found, and held against what it is called with."""

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
from kernelpath.course.registry import Item
from kernelpath.course.spec import Exercise
from kernelpath.work.blame import EntryError
from kernelpath.work.witness import SubmissionThread


def import_lane(lane: str, device: str) -> None:
    """Import what compiles for a lane, before the process gives anything up. Raises ImportError."""
    if lane == "cuda":
        from warpcheck.frontends import cuda  # noqa: F401
    if lane == "cute":
        from warpcheck.frontends import cute  # noqa: F401
    if lane == "triton":
        from warpcheck.frontends import triton

        triton.activate(device)


def language(exercise: Exercise | None, lane: str) -> str:
    """What the kernels of an exercise have to be written in, where that is not CUDA C++."""
    is_kernel = exercise is not None and exercise.kind == "kernel"
    return words.LANES[lane] if is_kernel and lane in ("triton", "cute") else ""


def load_baseline(item: Item, exercise: Exercise) -> None:
    """Load what the submission races, and read its CUDA C++, before the process gives up the checkout."""
    sources = [item.declaration.with_suffix(".cu")]
    if isinstance(exercise.baseline, registry.Solution):
        with suppress(SolutionUnavailable):  # said when the race begins
            exercise.baseline.load()
            sources.append(registry.find(exercise.baseline.name, item.root).solution.with_suffix(".cu"))
    for source in filter(Path.is_file, sources):
        from warpcheck.frontends import cuda

        cuda.read_ahead(source)


def find(module: ModuleType, name: str) -> Callable[..., Any]:
    """The function of that name. Raises EntryError, which names those that there are."""
    entry = getattr(module, name, None)
    if callable(entry):
        return entry  # type: ignore[no-any-return]
    others = [
        key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == "submission"
    ]
    defined = f"it defines {', '.join(others)}" if others else "it defines no function"
    raise EntryError(f"the file defines no function {name}; {defined}")


def called(entry: Callable[..., Any], exercise: Exercise | None, lane: str) -> Callable[..., Any]:
    """What takes the problem's inputs and gives its outputs: the entry, of an operator with its gradient, of JAX with
    tensors for arrays.

    Imports what that needs, and what makes products on the PTX machine.
    """
    if exercise is not None and exercise.products:
        from kernelpath.work import products  # noqa: F401
    if lane == "pallas":
        from kernelpath.work import pallas

        return pallas.of_torch(entry)
    if exercise is None or exercise.kind not in ("operator", "library"):
        return entry
    from kernelpath.work import operators

    if exercise.library is not None:
        from kernelpath.work import package  # noqa: F401
    return operators.with_gradient(entry, exercise.gradients_of)


def install(thread: SubmissionThread, exercise: Exercise | None, file: Path) -> None:
    """Build and install the package that lies beside the file, where the exercise is one of those."""
    if exercise is not None and exercise.library is not None:
        from kernelpath.work import package

        thread.call(package.install, exercise.library, file.with_suffix(""))


def examine(thread: SubmissionThread, exercise: Exercise, device: torch.device) -> None:
    """Hold what was installed against its contract, and its tests against faults."""
    if exercise.library is not None:
        from kernelpath.work import package

        thread.call(package.examine, exercise.library, device)


def check(entry: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Raise EntryError unless it can be called with these arguments."""
    try:
        inspect.signature(entry).bind(*arguments)
    except TypeError as error:
        name = getattr(entry, "__name__", "the entry")
        raise EntryError(f"{name} is called with {len(arguments)} arguments: {error}") from error
    except ValueError:
        return
