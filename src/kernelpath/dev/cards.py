"""Compile the reference kernels for GPU models that are not here, and record what the models lack.

A solution's host code runs as it would beside a GPU of the architecture: it sees that GPU's properties, and its lane's
compilers make machine code for it. Launches are checked against the GPU's limits, and nothing is executed.
"""

from __future__ import annotations

import multiprocessing
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from kernelpath import packages
from kernelpath.course import registry
from kernelpath.course.inputs import generate_inputs
from kernelpath.course.problem import Case
from kernelpath.course.registry import ExerciseRef, Tree
from kernelpath.course.spec import Exercise
from kernelpath.grading import devices
from kernelpath.show import results
from kernelpath.verdict import encode
from warpcheck import backend, simt, simulated_gpu
from warpcheck.frontends import Unavailable
from warpcheck.target import KIB, MULTIPROCESSORS, SM_80, SM_90A, Target

# The compulsory bytes up to which the bench case is used. Larger inputs would take minutes to generate on a CPU.
MAX_COMPULSORY_BYTES = 500_000_000

# The multiprocessors of a T4, an A100, an A40, an L4, an H200, a B200 and an RTX 5090, by their data sheets.
_PROCESSORS = {"sm_75": 40, "sm_80": 108, "sm_86": 84, "sm_89": 58, "sm_90": 132, "sm_100": 148, "sm_120": 170}


@dataclass(frozen=True)
class _CompileTarget(Target):
    """An architecture to compile machine code for."""

    @property
    def virtual(self) -> str:
        """Return a real architecture, for which NVRTC also runs its ptxas."""
        return self.name


def target(name: str) -> Target:
    """Return the architecture "sm_75" with its limits, from the table of multiprocessors. Raises KeyError."""
    processor = MULTIPROCESSORS[name]
    number = int(name.removeprefix("sm_"))
    base = SM_90A if number >= SM_90A.capability else SM_80
    limits = {key: getattr(base, key) for key in Target.__dataclass_fields__}
    limits |= {
        "name": name + "a" * (number >= SM_90A.capability),
        "capability": number,
        "multiprocessors": _PROCESSORS[name],
        "shared": processor.shared - processor.shared_reserved,
    }
    return _CompileTarget(**limits)


def properties(model_target: Target) -> simulated_gpu.Properties:
    """Return what a program sees of such a GPU, under torch's names."""
    major, minor = divmod(model_target.capability, 10)
    return {
        **simulated_gpu.MODELS[SM_80.name],
        "major": major,
        "minor": minor,
        "multi_processor_count": model_target.multiprocessors,
        "max_threads_per_multi_processor": 32 * model_target.multiprocessor.warps,
        "shared_memory_per_block_optin": model_target.shared,
        "shared_memory_per_multiprocessor": model_target.multiprocessor.shared,
    }


class CompiledKernel(NamedTuple):
    """A kernel that host code launched, as its compiler returned it."""

    ptx: str
    name: str


class CompileOnlyDevice(backend.Local):
    """A device that loads modules and records launches without executing them."""

    def __init__(self, compiled: list[CompiledKernel]) -> None:
        self._compiled = compiled

    def load(self, text: str, source: str | None = None) -> backend.Module:
        return _CompileOnlyModule(simt.load(text, source, simulated_gpu.target()), text, self._compiled)


class _CompileOnlyModule:
    def __init__(self, module: simt.Module, text: str, compiled: list[CompiledKernel]) -> None:
        self.kernels = module.kernels
        self._text = text
        self._compiled = compiled

    def compile(self, name: str) -> None:
        pass

    def launch(
        self,
        name: str,
        *,
        grid: backend.Dim3,
        block: backend.Dim3,
        shared: int,
        cluster: backend.Dim3 | None = None,
        **_: Any,
    ) -> backend.LaunchResult:
        x, y, z = (cluster or (*self.kernels[name].cluster, 1, 1, 1))[:3]
        if refusal := simulated_gpu.target().refusal(grid, block, 0, shared, (x, y, z)):
            raise ValueError(refusal)
        self._compiled.append(CompiledKernel(self._text, name))
        return backend.LaunchResult(0)


def record(item: ExerciseRef) -> dict[str, str]:
    """Write what keeps an exercise's reference kernel from each architecture to results/cards.json, and return it."""
    exercise_obstacles = obstacles(item)
    all_obstacles = {**results.cards(item.root).obstacles, item.name: exercise_obstacles}
    ordered = {
        exercise.name: all_obstacles[exercise.name]
        for exercise in registry.exercises(item.root)
        if exercise.name in all_obstacles
    }
    contents = results.Cards({**packages.versions()}, ordered)
    (item.root / results.FOLDER / results.CARDS).write_text(encode(contents, indent=1) + "\n", encoding="utf-8")
    return exercise_obstacles


def obstacles(item: ExerciseRef, names: Iterable[str] = MULTIPROCESSORS, timed: bool = True) -> dict[str, str]:
    """Return why the reference kernel does not compile for, or does not fit, each architecture that fails.

    Each architecture has a process of its own, since a compiler may end the process.

    Args:
        timed: Use the limits and the bench case as well.
    """
    declaration = registry.load(item)
    inputs_by_lanes: dict[tuple[str, ...], list[Sequence[Any]]] = {}
    obstacles_by_name: dict[str, str] = {}
    for name in names:
        model_target = target(name)
        if requirement := _missing_requirement(declaration, model_target):
            obstacles_by_name[name] = requirement
            continue
        exercise, replaced = devices.adapt_exercise(declaration, "cpu", model_target)
        if replaced not in inputs_by_lanes:
            inputs_by_lanes[replaced] = [generate_inputs(exercise, case, 1, "cpu") for case in _cases(exercise, timed)]
        if failures := run_in_fork(partial(_try_cases, item, exercise, model_target, inputs_by_lanes[replaced])):
            obstacles_by_name[name] = _summarize_failures(failures)
    return obstacles_by_name


def _cases(exercise: Exercise, timed: bool) -> list[Case]:
    """Return the largest case of each dtype, the limits, and the bench case unless torch makes its GEMM inputs.

    Limits may use kernels of their own: the longest rows, the largest heads.
    """

    def size(case: Case) -> int:
        return exercise.compulsory_bytes(**case)

    cases = list({str(case.get("dtype")): case for case in sorted(exercise.cases, key=size)}.values())
    if not timed:
        return cases
    cases += [case for case in (*exercise.limits, *exercise.gpu_limits) if size(case) <= MAX_COMPULSORY_BYTES]
    bench = exercise.bench
    return [*cases, bench] if bench and size(bench) <= MAX_COMPULSORY_BYTES and not exercise.products else cases


def _missing_requirement(exercise: Exercise, model_target: Target) -> str:
    """Return the declaration's requirement if the architecture does not meet it, else ""."""
    if not devices.missing_capability(exercise, "cpu", model_target):
        return ""
    assert exercise.requires is not None
    major, minor = exercise.requires
    return f"requires sm_{major}{minor}" + "a, no other" * exercise.specific


def _summarize_failures(failures: Sequence[str]) -> str:
    """Return the largest request for shared memory if all cases failed with one, else the first other failure."""
    requests = [int(match[1]) for failure in failures if (match := _SHARED_BYTES.search(failure))]
    if len(requests) == len(failures):
        return f"requires {-(-max(requests) // KIB)} KiB of shared memory in a block"
    return next(failure for failure in failures if not _SHARED_BYTES.search(failure)).partition("\n")[0]


# The bytes in the messages of Triton and of a target's limits.
_SHARED_BYTES = re.compile(r"(?:shared memory, Required: |^ValueError: )(\d+)")


def _try_cases(
    item: ExerciseRef, exercise: Exercise, model_target: Target, inputs_of_cases: Iterable[Sequence[Any]]
) -> list[str]:
    """Run the cases, and return how those ended that failed."""
    compiled: list[CompiledKernel] = []
    simulated_gpu.show(properties(model_target), model_target)
    backend.use(CompileOnlyDevice(compiled))
    entry = load_entry(item, exercise)
    failures = []
    for inputs in inputs_of_cases:
        count = len(compiled)
        try:
            entry(*inputs)
        except Unavailable as error:
            cause = error.__cause__
            failures.append(f"{type(cause).__name__}: {cause}" if cause else str(error))
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")
        else:
            failures += ["no kernel was launched"] * (len(compiled) == count)
    return failures


def load_entry(item: ExerciseRef, exercise: Exercise, tree: Tree = "expert") -> Callable[..., Any]:
    """Import the kernel of a tree, and return the function that takes the problem's inputs."""
    if item.lane == "triton":
        from warpcheck.frontends import triton

        triton.activate("cpu")
    submission = item.submission(tree)
    sys.path.insert(0, str(submission.with_suffix("") / "src"))  # the sources of a library
    entry: Callable[..., Any] = getattr(registry.import_file(submission, f"cards_{item.name}"), exercise.entry)
    if exercise.kind in ("kernel", "repair", "program"):
        return entry
    from kernelpath.work.operators import with_gradient

    return with_gradient(entry, exercise.gradients_of)


def run_in_fork(work: Callable[[], list[str]]) -> list[str]:
    """Run `work` in a process of its own, and return its result, or that the process was ended."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # fork, not spawn: the child inherits the generated inputs, which may be hundreds of megabytes.
    process = multiprocessing.get_context("fork").Process(target=_send_result, args=(sender, work))
    process.start()
    # The parent's copy of the sending end is closed, so that recv() raises EOFError when the child has ended without a
    # result.
    sender.close()
    result: list[str] = []
    with suppress(EOFError):
        # Received before join(): a child whose result does not fit in the pipe would wait for a reader, see pipe(7).
        result = receiver.recv()
    process.join()
    return result if process.exitcode == 0 else [f"the compiler ended its process with status {process.exitcode}"]


def _send_result(to: Connection, work: Callable[[], list[str]]) -> None:
    torch.set_num_threads(1)  # the parent's pool of threads did not survive the fork
    to.send(work())
    to.close()
