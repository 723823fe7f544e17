"""Negative controls: wrong answers, made from the truth, that the comparison of every exercise must reject."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from kernelpath.course import registry
from kernelpath.course.problem import Case
from kernelpath.course.registry import Item
from kernelpath.course.spec import Exercise
from kernelpath.grading import compare
from kernelpath.grading.truth import derive, draw_inputs, expected_outputs

Outputs = list[torch.Tensor]

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


def admitted(item: Item) -> Iterator[str]:
    """The wrong answers that one exercise lets pass, and the right ones that it does not."""
    exercise = registry.load(item)
    calls = [_call(exercise, case, seed) for seed, case in enumerate(exercise.cases)]
    for call in calls:
        if complaint := compare.judge(call.right, call.truth, exercise.tolerance):
            yield f"{item.name} {dict(call.case)}: the rounded truth is called wrong: {complaint.cause}"
    for name, control in CONTROLS.items():
        answers = [(call, wrong) for call in calls if (wrong := control(call)) and not _equal(wrong, call.right)]
        if answers and not any(compare.judge(wrong, call.truth, exercise.tolerance) for call, wrong in answers):
            yield f"{item.name}: {name} passes on every case; tighten the tolerance or add a case"


def _call(exercise: Exercise, case: Case, seed: int) -> Call:
    inputs, before = (draw_inputs(exercise, case, derive(seed, call), "cpu") for call in ("this", "first"))
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


CONTROLS: Mapping[str, Callable[[Call], Outputs | None]] = {
    "zeros": zeros,
    "the input copied": input_copied,
    "the last tile skipped": last_tile_skipped,
    "the next lower precision": next_lower_precision,
    "the first call's output returned again": first_output_again,
}
"""Wrong answers by name. None where an exercise has no such answer."""


def lowered(tensor: torch.Tensor) -> torch.Tensor:
    """The values rounded to the next lower precision's significand, with the exponents of their own dtype."""
    bits = _SIGNIFICAND_BELOW.get(tensor.dtype)
    if bits is None:
        return tensor
    significand, exponent = torch.frexp(tensor.double())
    return torch.ldexp(torch.round(significand * 2**bits) / 2**bits, exponent).to(tensor.dtype)
