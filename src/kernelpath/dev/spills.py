"""Which reference kernels spill: what ptxas says of every kernel that a solution launches.

What ptxas finds no register for goes to local memory, which is in DRAM. A reference kernel has nothing there, with the
oldest and with the newest compilers that were tried. As in `dev.cards`, a solution's host code runs, its kernels are
compiled for the architecture that the exercise declares, and nothing is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from kernelpath import packages, words
from kernelpath.course import registry
from kernelpath.course.inputs import draw_inputs
from kernelpath.course.problem import Case
from kernelpath.course.registry import Item
from kernelpath.course.spec import Exercise
from kernelpath.dev import cards
from kernelpath.device import api, gpu
from kernelpath.grading import devices
from kernelpath.grading.ground_truth import placement_runs
from kernelpath.simt.assembler import assembled
from kernelpath.simt.target import Target

LARGEST = 150_000_000
"""Compulsory bytes up to which a case takes part: drawing larger inputs takes longer than compiling."""


def reference_kernels_do_not_spill(item: Item) -> Iterator[str]:
    """No kernel of a solution has a stack frame or spills, unless the declaration says why."""
    if registry.load(item).spills:
        return
    for spilled in spills(item):
        advice = "make it smaller, or give the reason in the declaration's `spills`"
        yield f"{item.solution.relative_to(item.root)}: {spilled}; {advice}"


def spills(item: Item) -> list[str]:
    """Describe each kernel of the solution that needs local memory, with the first case that launches it.

    A case that does not come to its end, and a kernel that ptxas refuses, are described as well.
    """
    exercise = registry.load(item)
    if not exercise.is_kernel or packages.lacking(item.lane):
        return []
    return cards.run_in_fork(partial(_describe_all, item, exercise, devices.choose_target(exercise, "cpu", None)))


def _describe_all(item: Item, exercise: Exercise, target: Target) -> list[str]:
    launched: list[cards.Launched] = []
    gpu.show({"multi_processor_count": exercise.multiprocessors} if exercise.multiprocessors else {}, target)
    api.use(cards.Unexecuted(launched))
    entry = cards.load_entry(item, exercise)
    described: dict[cards.Launched, str] = {}
    failed: list[str] = []
    for case, inputs in _calls(exercise):
        first = len(launched)
        try:
            entry(*inputs)
        except Exception as error:
            failed.append(f"{words.case(case)}: {type(error).__name__}: {error}".partition("\n")[0])
        for kernel in launched[first:]:
            if kernel not in described:
                described[kernel] = _describe(kernel, case, target)
    return [text for text in described.values() if text] + failed


def _calls(exercise: Exercise) -> Iterator[tuple[Case, Sequence[Any]]]:
    """Yield every case with inputs, then the small cases with tensors that begin anywhere, as grading calls them."""
    drawn = []
    for case in exercise.cases:
        drawn.append(draw_inputs(exercise, case, 1, "cpu"))
        yield case, drawn[-1]
    for index, variety in placement_runs(exercise, drawn):
        yield exercise.cases[index], draw_inputs(exercise, exercise.cases[index], 1, "cpu", variety)
    others = [*exercise.limits, *exercise.gpu_limits, *exercise.sweep, *([exercise.bench] if exercise.bench else [])]
    for case in others:
        if exercise.compulsory_bytes(**case) <= LARGEST:
            yield case, draw_inputs(exercise, case, 1, "cpu")


def _describe(kernel: cards.Launched, case: Case, target: Target) -> str:
    """What of a kernel is in local memory; empty where nothing is."""
    code = assembled(kernel.ptx, kernel.name)
    where = f"{kernel.name}, at {words.case(case)}, for {target.name}"
    if code is None:
        return f"{where}: there is no ptxas, or it refuses the PTX"
    if not code.uses_local_memory:
        return ""
    spilled = f"{code.spill_stores} bytes spill stores, {code.spill_loads} bytes spill loads"
    return f"{where}: {code.stack} bytes stack frame, {spilled}"
