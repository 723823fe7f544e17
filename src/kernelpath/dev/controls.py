"""Negative controls: wrong answers, made from the truth, that the comparison of every exercise must reject."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from kernelpath.course import draw, registry
from kernelpath.course.inputs import (
    ALIGNMENT,
    EXTREME,
    PLAIN,
    Variety,
    misalignments,
    moves,
    serves_vectors,
    tensors_of,
)
from kernelpath.course.problem import Case
from kernelpath.course.registry import Item
from kernelpath.course.spec import Exercise
from kernelpath.dev import reports
from kernelpath.grading import compare
from kernelpath.grading.ground_truth import (
    derive_seed,
    draw_inputs,
    expected_outputs,
    list_outputs,
    magnitudes_of,
    placement_runs,
)
from kernelpath.verdict import Finding

Outputs = list[torch.Tensor]

MOST_BLOCKS = 65_535
"""That a grid may have along y or z."""

_SIGNIFICAND_BELOW = {torch.float64: 24, torch.float32: 11, torch.float16: 8, torch.bfloat16: 4}
"""Bits of significand of the next lower precision: float32, TF32, bfloat16, float8 e4m3."""


@dataclass(frozen=True)
class Call:
    """One case with its inputs, the truth, the truth rounded to the dtype of the output, and another call's outputs."""

    exercise: Exercise
    case: Case
    inputs: tuple[object, ...]
    truth: Outputs
    right: Outputs
    earlier: Outputs

    def judged(self, outputs: Outputs) -> Finding | None:
        magnitudes = magnitudes_of(self.exercise, self.inputs)
        return compare.check_outputs(outputs, self.truth, self.exercise.tolerance, magnitudes=magnitudes)


Controls = Mapping[str, Callable[[Call], Outputs | None]]


def admitted(item: Item) -> Iterator[str]:
    """The wrong answers that one exercise lets pass, the right ones that it does not, and the inputs that it lacks."""
    exercise = registry.load(item)
    if exercise.kind == "trace":
        yield from (f"{item.name}{words}" for words in reports.admitted(exercise))
        return
    calls = [_call(exercise, case, seed) for seed, case in enumerate(exercise.cases)]
    said = [*_rounded_truths(calls), *_passing(calls, CONTROLS, besides=_equal)]
    if exercise.is_kernel:
        said += [*_extremes(exercise), *_misaligned(exercise, calls), *_sizes(exercise, calls)]
    yield from (f"{item.name}{words}" for words in said)


def _rounded_truths(calls: Sequence[Call]) -> Iterator[str]:
    for call in calls:
        if finding := call.judged(call.right):
            yield f" {dict(call.case)}: the rounded truth is rejected: {finding.cause}"


def _passing(calls: Sequence[Call], controls: Controls, besides: Callable[[Outputs, Outputs], bool]) -> Iterator[str]:
    """The controls whose every answer passes, of those that have one. besides: whether an answer is the right one."""
    for name, control in controls.items():
        answers = [(call, wrong) for call in calls if (wrong := control(call)) and not besides(wrong, call.right)]
        if answers and not any(call.judged(wrong) for call, wrong in answers):
            yield f": {name} passes on every case; tighten the tolerance or add a case"


def _extremes(exercise: Exercise) -> Iterator[str]:
    """What extreme values show: every kind of bits where data is moved, the declared faults where it is computed."""
    calls = [_call(exercise, case, seed, EXTREME) for seed, case in enumerate(exercise.cases)]
    yield from _rounded_truths(calls)
    given = [tensor for call in calls for tensor in tensors_of(call.inputs)]
    for place in range(len(tensors_of(calls[0].inputs))):
        indices = [tensors_of(call.inputs)[place] for call in calls]
        if not indices[0].is_floating_point() and all(len(one.unique()) == one.numel() for one in indices):
            yield f": tensor {place} of integers repeats no value; repeat some in the problem's extreme"
    if not any(tensor.is_floating_point() for tensor in given):
        return
    if moves(exercise):
        for name, loss in LOSSES.items():
            if not any(call.judged([loss(output) for output in call.right]) for call in calls):
                yield f": {name} passes on every case; give the inputs draw.any_bits_ in the problem's extreme"
    elif not exercise.problem.faults:
        yield ": no extreme values; declare the problem's extreme, and its faults that show with them alone"
    for name, fault in exercise.problem.faults.items():
        wrong = ((call, _rounded(exercise, call.inputs, list_outputs(fault, call.inputs))) for call in calls)
        if not any(call.judged(outputs) for call, outputs in wrong):
            yield f": the fault {name!r} passes on every case; give the problem's extreme the values that show it"


def _misaligned(exercise: Exercise, calls: Sequence[Call]) -> Iterator[str]:
    """Each tensor that is read as if it began at a multiple of 16 bytes, where it alone does not."""
    drawn = [call.inputs for call in calls]
    if not misalignments(exercise, drawn[0]):
        return
    runs = placement_runs(exercise, drawn)
    floats = any(tensor.is_floating_point() for tensor in tensors_of(drawn[0]))
    if floats and not any(serves_vectors(drawn[index]) for index, _ in runs):
        yield ": no small case allows 16-byte accesses; add one whose rows are a multiple of 16 bytes"
    again = [(_call(exercise, exercise.cases[index], index, variety), variety.misaligned) for index, variety in runs]
    for place in range(len(tensors_of(drawn[0]))):
        alone = [(call, _taken_as_aligned(call, place)) for call, misaligned in again if misaligned == 1 << place]
        if not any(call.judged(wrong) for call, wrong in alone):
            yield f": tensor {place} may be assumed to be aligned; add a small case, at most a quarter of the largest"


def _taken_as_aligned(call: Call, place: int) -> Outputs:
    tensor = tensors_of(call.inputs)[place]
    begin = tensor.storage_offset() // (ALIGNMENT // tensor.element_size()) * (ALIGNMENT // tensor.element_size())
    moved = tensor.as_strided(tensor.shape, tensor.stride(), begin)
    inputs = tuple(moved if value is tensor else value for value in call.inputs)
    return _rounded(call.exercise, call.inputs, expected_outputs(call.exercise, inputs))


def _sizes(exercise: Exercise, calls: Sequence[Call]) -> Iterator[str]:
    """A grid has at most 65,535 blocks along y and z. Cases for a GPU alone are drawn where no smaller one shows it."""
    limits = [_call(exercise, case, seed) for seed, case in enumerate(exercise.limits)]
    yield from _rounded_truths(limits)
    beyond = (_call(exercise, case, seed) for seed, case in enumerate(exercise.gpu_limits, start=len(limits)))
    shapes = [call.right[0].shape for call in calls]
    axis = next((axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1), None)
    if not any(call.judged(_cut_off(call, axis)) for call in chain(calls, limits, beyond)):
        yield f": what is right up to {MOST_BLOCKS:,} rows passes; add a thin case with more to the problem's limits"


def _cut_off(call: Call, axis: int | None) -> Outputs:
    """The outputs up to the 65,535th row along `axis`; where they are of one size, those of so much of the input."""
    if axis is not None:
        return [_up_to(MOST_BLOCKS, output, axis) for output in call.right]
    inputs = tuple(value[:MOST_BLOCKS] if isinstance(value, torch.Tensor) else value for value in call.inputs)
    return _rounded(call.exercise, call.inputs, list_outputs(call.exercise.reference, inputs))


def _up_to(rows: int, output: torch.Tensor, axis: int) -> torch.Tensor:
    wrong = output.clone()
    wrong.narrow(axis, min(rows, output.shape[axis]), max(0, output.shape[axis] - rows)).zero_()
    return wrong


def _call(exercise: Exercise, case: Case, seed: int, variety: Variety = PLAIN) -> Call:
    inputs, before = (
        draw_inputs(exercise, case, derive_seed(seed, call), "cpu", variety) for call in ("this", "first")
    )
    truth = expected_outputs(exercise, inputs)
    right = _rounded(exercise, inputs, truth)
    return Call(exercise, case, inputs, truth, right, _rounded(exercise, before, expected_outputs(exercise, before)))


def _rounded(exercise: Exercise, inputs: tuple[object, ...], truth: Outputs) -> Outputs:
    """The truth in the dtype that a right answer has: the only one allowed, else that of the first input."""
    allowed = [getattr(torch, name) for name in exercise.tolerance]
    given = [value.dtype for value in inputs if isinstance(value, torch.Tensor) and value.dtype in allowed]
    dtype = given[0] if given else allowed[0]
    return [output.to(dtype) for output in truth]


def _equal(outputs: Outputs, others: Outputs) -> bool:
    return all(torch.equal(output, other) for output, other in zip(outputs, others, strict=True))


def zeros(call: Call) -> Outputs:
    return [torch.zeros_like(output) for output in call.right]


def input_copied(call: Call) -> Outputs | None:
    """Every output is the first input, where the shapes allow it."""
    tensors = [value for value in call.inputs if isinstance(value, torch.Tensor)]
    copies = [t.to(o.dtype) for o in call.right for t in tensors[:1] if t.shape == o.shape]
    return copies if len(copies) == len(call.right) else None


def last_tile_skipped(call: Call) -> Outputs:
    """The last 32 elements are left at zero."""
    outputs = [output.clone(memory_format=torch.contiguous_format) for output in call.right]
    for output in outputs:
        output.view(-1)[-32:] = 0
    return outputs


def next_lower_precision(call: Call) -> Outputs | None:
    """The same computation from inputs, and to outputs, of the next lower precision; not asked of measurements."""
    if not (call.exercise.is_kernel and call.right[0].is_floating_point()):
        return None
    inputs = [lowered(value) if isinstance(value, torch.Tensor) else value for value in call.inputs]
    outputs = _rounded(call.exercise, call.inputs, expected_outputs(call.exercise, inputs))
    return [lowered(output) for output in outputs]


def first_output_again(call: Call) -> Outputs:
    return call.earlier


CONTROLS: Controls = {
    "zeros": zeros,
    "the input copied": input_copied,
    "the last tile skipped": last_tile_skipped,
    "the next lower precision": next_lower_precision,
    "the first call's output returned again": first_output_again,
}
"""Wrong answers by name. None where an exercise has no such answer."""

LOSSES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros without their sign": lambda output: torch.where(output == 0, torch.zeros_like(output), output),
    "denormals flushed": lambda output: draw.flushed(output) if output.is_floating_point() else output,
    "infinities made finite": lambda output: output.nan_to_num(nan=math.nan),
    "NaN without its payload": lambda output: torch.where(output.isnan(), math.nan, output),
}
"""What data that is only moved may lose."""


def lowered(tensor: torch.Tensor) -> torch.Tensor:
    """The values rounded to the next lower precision's significand, with the exponents of their own dtype."""
    bits = _SIGNIFICAND_BELOW.get(tensor.dtype)
    if bits is None:
        return tensor
    significand, exponent = torch.frexp(tensor.double())
    return torch.ldexp(torch.round(significand * 2**bits) / 2**bits, exponent).to(tensor.dtype)
