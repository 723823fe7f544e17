"""Derive negative controls from the truth: wrong answers that the comparison of every exercise must reject."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch

from kernelpath.course import draw, registry
from kernelpath.course.inputs import (
    ALIGNMENT,
    EXTREME,
    PLAIN,
    InputMode,
    generate_inputs,
    misalignments,
    moves,
    serves_vectors,
    tensors_of,
)
from kernelpath.course.problem import Case
from kernelpath.course.registry import ExerciseRef
from kernelpath.course.spec import Exercise
from kernelpath.course.traces import Facts
from kernelpath.grading import compare
from kernelpath.grading.facts import check_facts, facts_match
from kernelpath.grading.ground_truth import (
    derive_seed,
    expected_outputs,
    list_outputs,
    magnitudes_of,
    placement_runs,
)
from kernelpath.verdict import Finding

Outputs = list[torch.Tensor]

# The maximum number of blocks in a grid's y and z dimensions.
MAX_GRID_YZ = 65_535

# The maximum compulsory bytes of a case. Its values in float64, and those of each control, take several times as much.
MAX_CASE_BYTES = 2 << 30

# The significand bits of the next lower precision: float32, TF32, bfloat16, float8 e4m3.
_SIGNIFICAND_BELOW = {torch.float64: 24, torch.float32: 11, torch.float16: 8, torch.bfloat16: 4}


class CaseTooLarge(Exception):
    """A case has more compulsory bytes than MAX_CASE_BYTES, so generating its inputs could exhaust the memory."""


@dataclass(frozen=True)
class ControlCall:
    """One case with its inputs and outputs.

    Attributes:
        seed: The seed of the case.
        mode: The mode of the inputs.
        truth: The outputs in float64.
        right: The truth rounded to the dtype of the output.
    """

    exercise: Exercise
    case: Case
    inputs: tuple[object, ...]
    seed: int
    mode: InputMode
    truth: Outputs
    right: Outputs

    @cached_property
    def earlier(self) -> Outputs:
        """The rounded truth of another call. Few calls need it, and it costs as much as the call itself."""
        inputs = _generate_inputs(self.exercise, self.case, self.seed, "first", self.mode)
        return _round_to_output_dtype(self.exercise, inputs, expected_outputs(self.exercise, inputs))

    def judge(self, outputs: Outputs) -> Finding | None:
        magnitudes = magnitudes_of(self.exercise, self.inputs)
        return compare.check_outputs(outputs, self.truth, self.exercise.tolerance, magnitudes=magnitudes)


Controls = Mapping[str, Callable[[ControlCall], Outputs | None]]


def find_violations(item: ExerciseRef) -> Iterator[str]:
    """Yield wrong answers that an exercise accepts, right ones that it rejects, and inputs that it lacks."""
    exercise = registry.load(item)
    find = find_fact_violations if exercise.kind == "trace" else _find_call_violations
    try:
        yield from (f"{item.name}{violation}" for violation in find(exercise))
    except CaseTooLarge as error:
        yield f"{item.name}{error}"


def _find_call_violations(exercise: Exercise) -> Iterator[str]:
    calls = [_make_call(exercise, case, seed) for seed, case in enumerate(exercise.cases)]
    yield from _rejected_truths(calls)
    yield from _undetected_controls(calls, CONTROLS, is_right=_equal)
    # Sizes and values are not where a repair goes wrong: the rest of the kernel is given, and right.
    if exercise.runs_on_gpu:
        yield from _extreme_value_violations(exercise)
        yield from _alignment_violations(exercise, calls)
        yield from _size_violations(exercise, calls)


def _rejected_truths(calls: Sequence[ControlCall]) -> Iterator[str]:
    for call in calls:
        if finding := call.judge(call.right):
            yield f" {dict(call.case)}: the rounded truth is rejected: {finding.cause}"


def _undetected_controls(
    calls: Sequence[ControlCall], controls: Controls, is_right: Callable[[Outputs, Outputs], bool]
) -> Iterator[str]:
    """Yield the controls that pass on every case to which they apply.

    Args:
        is_right: Compares an answer with the right one.
    """
    for name, control in controls.items():
        # One case that rejects the control suffices: the answers in further cases are not computed.
        applies = detected = False
        for call in calls:
            wrong = control(call)
            if wrong and not is_right(wrong, call.right):
                applies = True
                if call.judge(wrong):
                    detected = True
                    break
        if applies and not detected:
            yield f": {name} passes on every case; tighten the tolerance or add a case"


def _extreme_value_violations(exercise: Exercise) -> Iterator[str]:
    """Yield violations of extreme values: all bit patterns if data is moved, the declared faults if it is computed."""
    calls = [_make_call(exercise, case, seed, EXTREME) for seed, case in enumerate(exercise.cases)]
    yield from _rejected_truths(calls)
    tensors = [tensor for call in calls for tensor in tensors_of(call.inputs)]
    for index in range(len(tensors_of(calls[0].inputs))):
        indices = [tensors_of(call.inputs)[index] for call in calls]
        # A tensor of one element, such as a count, cannot repeat a value.
        several = [values for values in indices if values.numel() > 1]
        if (
            several
            and not indices[0].is_floating_point()
            and all(len(values.unique()) == values.numel() for values in several)
        ):
            yield f": tensor {index} of integers repeats no value; repeat some in the problem's extreme"
    if not any(tensor.is_floating_point() for tensor in tensors):
        return
    if moves(exercise):
        for name, loss in LOSSES.items():
            if not any(call.judge([loss(output) for output in call.right]) for call in calls):
                yield f": {name} passes on every case; give the inputs draw.any_bits_ in the problem's extreme"
    elif not exercise.problem.faults:
        yield ": no extreme values; declare the problem's extreme, and its faults that show with them alone"
    for name, fault in exercise.problem.faults.items():
        wrong = (
            (call, _round_to_output_dtype(exercise, call.inputs, list_outputs(fault, call.inputs))) for call in calls
        )
        if not any(call.judge(outputs) for call, outputs in wrong):
            yield f": the fault {name!r} passes on every case; give the problem's extreme the values that show it"


def _alignment_violations(exercise: Exercise, calls: Sequence[ControlCall]) -> Iterator[str]:
    """Yield each tensor that may be read as if it were aligned to 16 bytes, when it alone is not."""
    inputs_of_cases = [call.inputs for call in calls]
    if not misalignments(exercise, inputs_of_cases[0]):
        return
    runs = placement_runs(exercise, inputs_of_cases)
    floats = any(tensor.is_floating_point() for tensor in tensors_of(inputs_of_cases[0]))
    if floats and not any(serves_vectors(inputs_of_cases[index]) for index, _ in runs):
        yield ": no small case allows 16-byte accesses; add one whose rows are a multiple of 16 bytes"
    placed_calls = [(_make_call(exercise, exercise.cases[index], index, mode), mode.misaligned) for index, mode in runs]
    for index in range(len(tensors_of(inputs_of_cases[0]))):
        # Nobody reads 16 bytes of a tensor of one element, such as a count.
        if all(tensors_of(inputs)[index].numel() == 1 for inputs in inputs_of_cases):
            continue
        answers = [
            (call, _outputs_if_aligned(call, index)) for call, misaligned in placed_calls if misaligned == 1 << index
        ]
        if not any(call.judge(wrong) for call, wrong in answers):
            yield f": tensor {index} may be assumed to be aligned; add a small case, at most a quarter of the largest"


def _outputs_if_aligned(call: ControlCall, index: int) -> Outputs:
    tensor = tensors_of(call.inputs)[index]
    aligned_offset = (
        tensor.storage_offset() // (ALIGNMENT // tensor.element_size()) * (ALIGNMENT // tensor.element_size())
    )
    aligned = tensor.as_strided(tensor.shape, tensor.stride(), aligned_offset)
    inputs = tuple(aligned if value is tensor else value for value in call.inputs)
    return _round_to_output_dtype(call.exercise, call.inputs, expected_outputs(call.exercise, inputs))


def _size_violations(exercise: Exercise, calls: Sequence[ControlCall]) -> Iterator[str]:
    """Yield violations of the grid limit of 65,535 blocks along y and z. Cases for GPUs only are the last resort."""
    limits = [_make_call(exercise, case, seed) for seed, case in enumerate(exercise.limits)]
    yield from _rejected_truths(limits)
    gpu_calls = (_make_call(exercise, case, seed) for seed, case in enumerate(exercise.gpu_limits, start=len(limits)))
    shapes = [call.right[0].shape for call in calls]
    axis = next((axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1), None)
    if not any(call.judge(_truncate_to_grid(call, axis)) for call in chain(calls, limits, gpu_calls)):
        yield f": what is right up to {MAX_GRID_YZ:,} rows passes; add a thin case with more to the problem's limits"


def _truncate_to_grid(call: ControlCall, axis: int | None) -> Outputs:
    """Return the outputs up to the 65,535th row along `axis`.

    If all cases have outputs of one size, return the outputs of so many rows of the inputs.
    """
    if axis is not None:
        return [_zero_from_row(MAX_GRID_YZ, output, axis) for output in call.right]
    inputs = tuple(value[:MAX_GRID_YZ] if isinstance(value, torch.Tensor) else value for value in call.inputs)
    return _round_to_output_dtype(call.exercise, call.inputs, list_outputs(call.exercise.reference, inputs))


def _zero_from_row(rows: int, output: torch.Tensor, axis: int) -> torch.Tensor:
    wrong = output.clone()
    wrong.narrow(axis, min(rows, output.shape[axis]), max(0, output.shape[axis] - rows)).zero_()
    return wrong


def _make_call(exercise: Exercise, case: Case, seed: int, mode: InputMode = PLAIN) -> ControlCall:
    inputs = _generate_inputs(exercise, case, seed, "this", mode)
    truth = expected_outputs(exercise, inputs)
    return ControlCall(exercise, case, inputs, seed, mode, truth, _round_to_output_dtype(exercise, inputs, truth))


def _generate_inputs(exercise: Exercise, case: Case, seed: int, call: str, mode: InputMode) -> tuple[object, ...]:
    nbytes = exercise.compulsory_bytes(**case)
    if nbytes > MAX_CASE_BYTES:
        limit = f"at most {MAX_CASE_BYTES / 2**30:.2f} GiB are generated for controls; make the case smaller"
        raise CaseTooLarge(f" {dict(case)}: {nbytes / 2**30:.2f} GiB of inputs and outputs, {limit}")
    return generate_inputs(exercise, case, derive_seed(seed, call), "cpu", mode)


def _round_to_output_dtype(exercise: Exercise, inputs: tuple[object, ...], truth: Outputs) -> Outputs:
    """Round the truth to the dtype of a right answer: the only one allowed, else that of the first input."""
    allowed = [getattr(torch, name) for name in exercise.tolerance]
    input_dtypes = [value.dtype for value in inputs if isinstance(value, torch.Tensor) and value.dtype in allowed]
    dtype = input_dtypes[0] if input_dtypes else allowed[0]
    return [output.to(dtype) for output in truth]


def _equal(outputs: Outputs, other_outputs: Outputs) -> bool:
    return all(torch.equal(output, other_output) for output, other_output in zip(outputs, other_outputs, strict=True))


def zeros(call: ControlCall) -> Outputs:
    return [torch.zeros_like(output) for output in call.right]


def input_copied(call: ControlCall) -> Outputs | None:
    """Return the first input for every output, if the shapes allow it."""
    tensors = [value for value in call.inputs if isinstance(value, torch.Tensor)]
    copies = [t.to(o.dtype) for o in call.right for t in tensors[:1] if t.shape == o.shape]
    return copies if len(copies) == len(call.right) else None


def last_tile_skipped(call: ControlCall) -> Outputs:
    """Leave the last 32 elements at zero."""
    outputs = [output.clone(memory_format=torch.contiguous_format) for output in call.right]
    for output in outputs:
        output.view(-1)[-32:] = 0
    return outputs


def next_lower_precision(call: ControlCall) -> Outputs | None:
    """Compute with inputs and outputs of the next lower precision. Measurements have no such control."""
    if not (call.exercise.is_kernel and call.right[0].is_floating_point()):
        return None
    inputs = [lower_precision(value) if isinstance(value, torch.Tensor) else value for value in call.inputs]
    outputs = _round_to_output_dtype(call.exercise, call.inputs, expected_outputs(call.exercise, inputs))
    return [lower_precision(output) for output in outputs]


def first_output_again(call: ControlCall) -> Outputs:
    return call.earlier


# Wrong answers by name. The result is None if an exercise has no such answer.
CONTROLS: Controls = {
    "zeros": zeros,
    "the input copied": input_copied,
    "the last tile skipped": last_tile_skipped,
    "the next lower precision": next_lower_precision,
    "the first call's output returned again": first_output_again,
}

# Losses of data that is only moved.
LOSSES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros without their sign": lambda output: torch.where(output == 0, torch.zeros_like(output), output),
    "denormals flushed": lambda output: draw.flush_denormals(output) if output.is_floating_point() else output,
    # NaN is replaced by itself, so that only infinities change.
    "infinities made finite": lambda output: output.nan_to_num(nan=math.nan),
    "NaN without its payload": lambda output: torch.where(output.isnan(), math.nan, output),
}


def lower_precision(tensor: torch.Tensor) -> torch.Tensor:
    """Round the values to the next lower precision's significand, with the exponents of their own dtype."""
    bits = _SIGNIFICAND_BELOW.get(tensor.dtype)
    if bits is None:
        return tensor
    # frexp and ldexp keep the exponent, so that a lower precision cannot overflow.
    significand, exponent = torch.frexp(tensor.double())
    return torch.ldexp(torch.round(significand * 2**bits) / 2**bits, exponent).to(tensor.dtype)


def find_fact_violations(exercise: Exercise) -> Iterator[str]:
    """Yield the facts that are the same in every case, and the cases whose own facts are rejected."""
    (tolerance,) = exercise.tolerance.values()
    inputs_of_cases = [generate_inputs(exercise, case, seed, "cpu") for seed, case in enumerate(exercise.cases)]
    facts_of_cases: list[Facts] = [exercise.reference(*inputs) for inputs in inputs_of_cases]
    for case, facts in zip(exercise.cases, facts_of_cases, strict=True):
        if finding := check_facts(exercise.entry, facts, facts, tolerance):
            yield f" {dict(case)}: its own facts are rejected: {finding.cause}"
    for name in facts_of_cases[0]:
        if all(facts_match(facts_of_cases[0][name], facts[name], tolerance) for facts in facts_of_cases):
            yield f": {name} is the same in every case; add one that varies it"
