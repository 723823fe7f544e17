"""Find our kernels that spill: what ptxas reports for every kernel that an answer or a reference kernel launches.

ptxas spills values without a register to local memory, which is in DRAM. None of our kernels may spill, with the oldest
and the newest compilers that were tried. As in `dev.cards`, their host code runs, its kernels are compiled for
the architecture that the exercise declares, and nothing is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from kernelpath import packages, words
from kernelpath.course import registry
from kernelpath.course.inputs import generate_inputs
from kernelpath.course.problem import Case
from kernelpath.course.registry import ExerciseRef, Tree
from kernelpath.course.spec import Exercise
from kernelpath.dev import cards
from kernelpath.grading import devices
from kernelpath.grading.ground_truth import placement_runs
from warpcheck import backend, simulated_gpu
from warpcheck.assembler import assembled
from warpcheck.target import Target

# The compulsory bytes up to which a case is used. Generating larger inputs takes longer than compiling.
MAX_COMPULSORY_BYTES = 150_000_000


def reference_kernels_do_not_spill(item: ExerciseRef) -> Iterator[str]:
    """Yield each kernel of ours with a stack frame or spills, unless the declaration allows it."""
    if registry.load(item).spills:
        return
    for description in spills(item):
        yield f"{description}; make it smaller, or give the reason in the declaration's `spills`"


def spills(item: ExerciseRef) -> list[str]:
    """Describe each kernel that needs local memory, with its file and the first case that launches it.

    A failing case, and a kernel that ptxas rejects, are described as well.
    """
    exercise = registry.load(item)
    if not exercise.runs_on_gpu or packages.lacking(item.lane):
        return []
    target = devices.choose_target(exercise, "cpu", None)
    trees: tuple[Tree, ...] = ("solutions", "expert") if item.has_expert else ("solutions",)
    return [
        f"{item.submission(tree).relative_to(item.course)}: {description}"
        for tree in trees
        for description in cards.run_in_fork(partial(_describe_all, item, tree, exercise, target))
    ]


def _describe_all(item: ExerciseRef, tree: Tree, exercise: Exercise, target: Target) -> list[str]:
    compiled: list[cards.CompiledKernel] = []
    simulated_gpu.show({"multi_processor_count": exercise.multiprocessors} if exercise.multiprocessors else {}, target)
    backend.use(cards.CompileOnlyDevice(compiled))
    entry = cards.load_entry(item, exercise, tree)
    descriptions: dict[cards.CompiledKernel, str] = {}
    failures: list[str] = []
    for case, inputs in _calls(exercise):
        first = len(compiled)
        try:
            entry(*inputs)
        except Exception as error:
            failures.append(f"{words.case(case)}: {type(error).__name__}: {error}".partition("\n")[0])
        for kernel in compiled[first:]:
            # One kernel serves many cases; the first of them stands for it.
            if kernel not in descriptions:
                descriptions[kernel] = _describe(kernel, case, target)
    return [text for text in descriptions.values() if text] + failures


def _calls(exercise: Exercise) -> Iterator[tuple[Case, Sequence[Any]]]:
    """Yield every case with inputs, then the small cases with misaligned tensors, as grading calls them."""
    drawn_inputs = []
    for case in exercise.cases:
        drawn_inputs.append(generate_inputs(exercise, case, 1, "cpu"))
        yield case, drawn_inputs[-1]
    # A compiler generates other code for pointers that are not known to be aligned, which may spill where the aligned
    # code does not.
    for index, mode in placement_runs(exercise, drawn_inputs):
        yield exercise.cases[index], generate_inputs(exercise, exercise.cases[index], 1, "cpu", mode)
    larger_cases = [
        *exercise.limits,
        *exercise.gpu_limits,
        *exercise.sweep,
        *([exercise.bench] if exercise.bench else []),
    ]
    for case in larger_cases:
        if exercise.compulsory_bytes(**case) <= MAX_COMPULSORY_BYTES:
            yield case, generate_inputs(exercise, case, 1, "cpu")


def _describe(kernel: cards.CompiledKernel, case: Case, target: Target) -> str:
    """Describe a kernel's use of local memory; empty if there is none."""
    code = assembled(kernel.ptx, kernel.name)
    place = f"{kernel.name}, at {words.case(case)}, for {target.name}"
    if code is None:
        return f"{place}: there is no ptxas, or it refuses the PTX"
    if not code.uses_local_memory:
        return ""
    spill_bytes = f"{code.spill_stores} bytes spill stores, {code.spill_loads} bytes spill loads"
    return f"{place}: {code.stack} bytes stack frame, {spill_bytes}"
