"""Compares outputs with the truth, in the grader's process, which never imports a submission."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from kernelpath.course.problem import EXACT, Tolerance
from kernelpath.course.spec import Exercise
from kernelpath.device.messages import POISON
from kernelpath.grading import input_range
from kernelpath.grading.ground_truth import Magnitudes, expected_outputs, magnitudes_of, output_dtype
from kernelpath.grading.provenance import Observation, other_block, other_cores
from kernelpath.verdict import Finding, Verdict
from kernelpath.work.tensors import dtype_name

_SHOWN = 3
_LISTED = 9
"""As many outputs, with their names, may be said to be right."""

_ENOUGH = 8
"""Wrong values, so that it is no accident if all have the same thing wrong with them."""

_NEARLY = 0.9
"""The share of values that may be told by their sign: the others fell to another side before they were rounded."""

_PIECE = 16  # bytes that a swizzle keeps together
_PIECES = 8  # of them in the 128 bytes within which the widest swizzle permutes them
_CYCLE = 8  # rows after which a swizzle begins again
_CYCLES = 16  # that are looked at

_ONLY = "the output"
_WIDE = torch.float64

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def judged(exercise: Exercise, observation: Observation) -> Finding | None:
    """What is wrong with a call, in the exercise's own words where it has any."""
    if observation.finding is not None:
        return observation.finding
    if finding := other_block(exercise, observation.notes):
        return finding
    expected = expected_outputs(exercise, observation.inputs)
    if len(observation.outputs) != len(expected):
        cause = f"{exercise.entry} returned {len(observation.outputs)} tensors, expected {len(expected)}"
        return Finding(Verdict.WRONG_TYPE, cause)
    expected = settled(exercise, expected, observation.outputs)
    dtype = output_dtype(exercise, observation.inputs)
    # only the stub of a kernel has names for its outputs
    names = exercise.outputs if exercise.is_kernel else (f"{exercise.entry}(…)",)
    magnitudes = magnitudes_of(exercise, observation.inputs)
    finding = judge(observation.outputs, expected, exercise.tolerance, dtype, names, magnitudes)
    if finding is not None and finding.verdict is Verdict.WRONG_VALUES:
        cause = f"{finding.cause}{input_range.describe_inputs(finding, observation, expected)}"
        finding = replace(finding, cause=cause)
    comparable = finding is None or finding.verdict is Verdict.WRONG_VALUES
    said = checked(exercise, observation) if comparable else None
    return said or finding or other_cores(exercise, observation)


def checked(exercise: Exercise, observation: Observation) -> Finding | None:
    """What the exercise's own check says of a call, where it has one."""
    said = exercise.check(observation.inputs, observation.outputs) if exercise.check is not None else None
    return Finding(Verdict.WRONG_VALUES, said) if isinstance(said, str) else said


def settled(
    exercise: Exercise, expected: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The truth, given what the outputs chose where the statement leaves a choice. Wrong shapes are left to `judge`."""
    settle = exercise.problem.settled
    if settle is None or [truth.shape for truth in expected] != [output.shape for output in outputs]:
        return list(expected)
    return settle(expected, [output.to(truth.device) for truth, output in zip(expected, outputs, strict=True)])


def unrepeated(first: Observation, again: Observation) -> Finding | None:
    """Whether two calls with the same inputs gave other bits."""
    for position, (one, other) in enumerate(zip(first.outputs, again.outputs, strict=True)):
        wrong = (bits(one) != bits(other)).flatten()
        if bool(wrong.any()):
            place = int(wrong.nonzero()[0])
            told, then = _told(one.flatten()[place], other.flatten()[place])
            cause = f"the same inputs gave {told} in one call and {then} in another; {_ORDER}"
            return Finding(Verdict.WRONG_VALUES, cause, element=(position, place))
    return None


_ORDER = "float additions round, so their order must not depend on which block or warp comes first"


@dataclass(frozen=True)
class _Output:
    """One output beside its truth.

    description: what a message calls the whole of it. name: what it calls an element, as in "dx[0, 3]".
    """

    position: int
    description: str
    name: str
    values: torch.Tensor
    truth: torch.Tensor
    tolerance: Mapping[str, Tolerance]
    magnitudes: Magnitudes | None

    @cached_property
    def wrong(self) -> torch.Tensor:
        """The elements that are not within the tolerance."""
        tolerance = self.tolerance[dtype_name(self.values.dtype)]
        wrong = mismatches(self.values, self.truth, tolerance)
        if self.magnitudes is not None and bool(wrong.any()):
            wrong = mismatches(self.values, self.truth, tolerance, magnitude=self.magnitudes()[self.position])
        return wrong


def judge(
    outputs: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    tolerance: Mapping[str, Tolerance],
    dtype: str | None = None,
    names: Sequence[str] = ("out",),
    magnitudes: Magnitudes | None = None,
) -> Finding | None:
    """The first fault of the outputs against the float64 (or exact) reference; None for right outputs.

    Shapes and dtypes of all outputs come before values.
    dtype: of the first output, where only one of the dtypes in `tolerance` is right. names: what the statement calls
    the outputs, of which some cases may have only the first ones. magnitudes: see Problem.magnitudes; called only if
    an output is not within rtol and atol.
    """
    if len(names) < len(outputs):
        each, odd = divmod(len(outputs), len(names))
        names = [f"{name}[{place}]" for name in names for place in range(each)]
        if odd or each == len(outputs):
            names = [f"output {position}" for position in range(len(outputs))]
    names = names[: len(outputs)]
    wholes = names if len(names) > 1 else (_ONLY,)
    compared = [
        _Output(position, description, name, output.to(truth.device), truth, tolerance, magnitudes)
        for position, (description, name, output, truth) in enumerate(
            zip(wholes, names, outputs, expected, strict=True)
        )
    ]
    for output in compared:
        allowed = (dtype,) if dtype and output.position == 0 else tuple(tolerance)
        if finding := _judge_type(output.description, output.values, output.truth, allowed):
            return finding
    for output in compared:
        if finding := _judge_values(output):
            return replace(finding, cause=f"{finding.cause}{_right(compared)}")
    return None


def _right(outputs: Sequence[_Output]) -> str:
    """Which outputs are right beside one that is not: they rule out what comes before them. Lists count as one."""
    are_right: dict[str, bool] = {}
    for output in outputs:
        name = output.name.partition("[")[0]
        are_right[name] = are_right.get(name, True) and not bool(output.wrong.any())
    right = [name for name, is_right in are_right.items() if is_right]
    if not right or len(are_right) > _LISTED:
        return ""
    *others, last = right
    return f"; {', '.join(others)} and {last} are right" if others else f"; {last} is right"


def _judge_type(name: str, output: torch.Tensor, truth: torch.Tensor, allowed: Sequence[str]) -> Finding | None:
    if output.shape != truth.shape:
        return Finding(Verdict.WRONG_SHAPE, f"{name} has shape {tuple(output.shape)}, expected {tuple(truth.shape)}")
    dtype = dtype_name(output.dtype)
    if dtype not in allowed:
        return Finding(Verdict.WRONG_DTYPE, f"{name} has dtype {dtype}, expected {' or '.join(allowed)}")
    return None


def _judge_values(output: _Output) -> Finding | None:
    wrong, values, truth = output.wrong, output.values, output.truth
    if not bool(wrong.any()):
        return None
    poisoned = wrong & is_poison(values)
    if bool(poisoned.any()):
        cause = f"{_count(poisoned)} of {output.description} were never written, {where(poisoned)}"
        return Finding(Verdict.NOT_WRITTEN, cause, element=(output.position, int(poisoned.flatten().nonzero()[0])))
    cause = f"{_count(wrong)} of {output.description} are wrong, {_examples(wrong, values, truth, output.name)}"
    if (times := _factor(wrong, values, truth, output.tolerance)) is not None:
        cause += f"; all are {times:.4g} times what is expected"
    if values.dtype == torch.bfloat16 and int(wrong.sum()) >= _ENOUGH and are_cut_off(values, truth):
        cause += "; they are cut off, not rounded to the nearest bfloat16"
    if is_swizzled(output):
        cause += f"; {_SWIZZLED}"
    return Finding(Verdict.WRONG_VALUES, cause, element=(output.position, int(wrong.flatten().nonzero()[0])))


_SWIZZLED = (
    "each piece of 16 bytes is where a swizzle puts another one of its row: "
    "the swizzle of the writer to shared memory is not that of the reader"
)


def is_swizzled(output: _Output) -> bool:
    """Whether an output is right but for pieces of 16 bytes that are permuted as a swizzle permutes them.

    A swizzle of shared memory permutes the pieces of 128 bytes, or of fewer: it XORs the number of a piece with a mask
    that follows from the row. With one mask for all rows the fault is another one.
    """
    values, truth = output.values, output.truth
    if values.dim() < 2:
        return False
    columns = values.shape[-1]
    is_wrong = output.wrong.reshape(-1, columns).any(1)
    cycles = (is_wrong.nonzero().flatten() // _CYCLE).unique()[:_CYCLES]
    cycles = cycles[(cycles + 1) * _CYCLE <= len(is_wrong)]
    if not len(cycles):
        return False
    rows = (cycles[:, None] * _CYCLE + torch.arange(_CYCLE, device=values.device)).flatten()
    piece = _PIECE // values.element_size()
    column = torch.arange(-(-columns // (_PIECES * piece)) * _PIECES * piece, device=values.device)
    values, truth = (tensor.reshape(-1, columns)[rows] for tensor in (values, truth))
    magnitude = output.magnitudes()[output.position].reshape(-1, columns)[rows] if output.magnitudes else None
    tolerance, scale = output.tolerance[dtype_name(values.dtype)], root_mean_square(output.truth)
    fits = []
    for mask in range(_PIECES):
        source = (column // piece ^ mask) * piece + column % piece
        is_inside = (column < columns) & (source < columns)
        here, there = column[is_inside], source[is_inside]
        shifted = None if magnitude is None else magnitude[:, there]
        wrong = torch.zeros(len(rows), len(column), dtype=torch.bool, device=values.device)
        wrong[:, is_inside] = mismatches(values[:, here], truth[:, there], tolerance, scale, shifted)
        fits.append(~wrong.view(len(rows), -1, _PIECES * piece).any(2))
    fitting = torch.stack(fits)  # by mask, row, and span of 128 bytes
    masks = fitting.int().argmax(0).view(len(cycles), _CYCLE, -1)  # the first that fits
    differ = (masks != masks[:, :1]).any(1).any(1)
    return bool(fitting.any(0).all()) and bool(differ.all())


def _factor(
    wrong: torch.Tensor, output: torch.Tensor, truth: torch.Tensor, tolerance: Mapping[str, Tolerance]
) -> float | None:
    """By what number a whole output is too large or too small, where that is all that is wrong with it."""
    large = wrong & (truth.abs() > 0.1 * root_mean_square(truth)) & torch.isfinite(truth)
    if not truth.is_floating_point() or int(large.sum()) < _ENOUGH:
        return None
    times = float((output[large].double() / truth[large].double()).median())
    other = mismatches(output, times * truth, tolerance[dtype_name(output.dtype)])
    return None if times in (0, math.inf, -math.inf) or math.isnan(times) or bool(other.any()) else times


def mismatches(
    output: torch.Tensor,
    truth: torch.Tensor,
    tolerance: Tolerance,
    rms: float | torch.Tensor | None = None,
    magnitude: torch.Tensor | None = None,
) -> torch.Tensor:
    """Where the output is not within tolerance of the truth. NaN and infinity must stand where the truth has them.

    A truth that was only moved has the dtype of the output and no tolerance: then all bits must be its own.
    rms: the root mean square of the whole truth, where `truth` is only a sample of it; one for each element, where it
    is samples of several. magnitude: of each element, as Problem.magnitudes has it; without it mtol does not count.
    """
    if not truth.is_floating_point():
        return output != truth
    if tolerance == EXACT and truth.dtype == output.dtype:
        return bits(output) != bits(truth)
    out = output.to(truth.dtype)
    finite = torch.isfinite(truth)
    scale = root_mean_square(truth) if rms is None else rms
    error = (out - truth).abs()
    relative = tolerance.rtol * truth.abs()
    close = error <= relative + tolerance.atol * scale
    if magnitude is not None:
        # An infinite magnitude beside a finite truth would excuse every value, so it excuses none.
        close |= error <= relative + tolerance.mtol * magnitude.nan_to_num(nan=0.0, posinf=0.0)
    same = (out == truth) | (torch.isnan(out) & torch.isnan(truth))
    return ~torch.where(finite, close, same)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a float tensor as integers of the same size."""
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()])


def are_cut_off(outputs: torch.Tensor, truth: torch.Tensor) -> bool:
    """Whether nearly all bfloat16 values are the upper halves of float32 ones, where rounding gives others.

    Those that are right count as well: of what is a little too small, all that is wrong looks cut off.
    """
    upper = (bits(truth.float()) & -(1 << 16)).view(torch.float32)
    telling = torch.isfinite(truth) & (truth.to(torch.bfloat16).float() != upper)
    return bool(telling.any()) and float((outputs.float() == upper)[telling].double().mean()) > _NEARLY


def root_mean_square(truth: torch.Tensor) -> float:
    """Over the finite elements; 0 without any, and for integers, which no tolerance is relative to."""
    return root_mean_squares([truth])[0]


def root_mean_squares(truths: Sequence[torch.Tensor]) -> list[float]:
    """The root mean square of each truth, with one transfer for all."""
    means = [_mean_square(truth) if truth.is_floating_point() else torch.zeros((), dtype=_WIDE) for truth in truths]
    return [math.sqrt(mean) for mean in torch.stack([mean.to(truths[0].device) for mean in means]).tolist()]


def _mean_square(truth: torch.Tensor) -> torch.Tensor:
    finite = torch.isfinite(truth)
    return truth.where(finite, 0).square_().sum(dtype=_WIDE) / finite.sum().clamp(min=1)


def wrong_sample(
    outputs: Sequence[torch.Tensor],
    places: Sequence[torch.Tensor],
    tolerance: Mapping[str, Tolerance],
    scales: Sequence[float],
    magnitudes: Sequence[torch.Tensor] | None = None,
) -> torch.Tensor | None:
    """Where the first sample that has wrong elements is wrong, of equally long samples of hundreds of outputs.

    places: the same samples of the truths. scales: the root mean square of each whole truth. magnitudes: the same
    samples of Problem.magnitudes.
    """
    kinds = [(output.dtype, place.dtype) for output, place in zip(outputs, places, strict=True)]
    for kind in dict.fromkeys(kinds):
        chosen = [index for index, one in enumerate(kinds) if one == kind]
        output, place = (torch.stack([samples[index] for index in chosen]) for samples in (outputs, places))
        rms = torch.tensor([[scales[index]] for index in chosen], dtype=_WIDE).to(place.device)
        magnitude = torch.stack([magnitudes[index] for index in chosen]) if magnitudes is not None else None
        wrong = mismatches(output, place, tolerance[dtype_name(output.dtype)], rms, magnitude)
        if bool(wrong.any()):
            return wrong[int(wrong.any(1).nonzero()[0])]
    return None


def is_poison(output: torch.Tensor) -> torch.Tensor:
    """Which elements still hold the poison pattern, bit for bit. Elements of one byte are never called poisoned."""
    size = output.element_size()
    if size == 1:
        return torch.zeros_like(output, dtype=torch.bool)
    halves = output.contiguous().view(-1).view(torch.int16).view(-1, size // 2)
    return (halves == POISON).all(1).view(output.shape)


def where(wrong: torch.Tensor) -> str:
    """In words, the smallest box that holds every wrong element: "rows 0..32, columns 992..999 of 33 x 1000"."""
    indices = wrong.nonzero()
    if indices.numel() == 0 or wrong.numel() == 1:
        return "the only element"
    names = ("rows", "columns") if wrong.dim() == 2 else tuple(f"axis {axis}:" for axis in range(wrong.dim()))
    names = ("elements",) if wrong.dim() == 1 else names
    spans = (
        f"{name} {int(axis.min())}..{int(axis.max())}" for name, axis in zip(names, indices.unbind(1), strict=True)
    )
    return f"within {', '.join(spans)} of {_shape(wrong)}"


def _examples(wrong: torch.Tensor, output: torch.Tensor, truth: torch.Tensor, called: str) -> str:
    first = wrong.nonzero()[:_SHOWN].tolist()
    pairs = ((index, *_told(output[tuple(index)], truth[tuple(index)])) for index in first)
    shown = (f"{called}[{', '.join(map(str, index))}] = {one}, expected {other}" for index, one, other in pairs)
    return f"{where(wrong)}; first: {'; '.join(shown)}"


def _told(one: torch.Tensor, other: torch.Tensor) -> tuple[str, str]:
    """Two different values; with their bits where they would read the same, as two NaNs do."""
    told = f"{one.item():.9g}", f"{other.item():.9g}"
    if told[0] != told[1] or one.dtype != other.dtype or not one.is_floating_point():
        return told
    width = 8 * one.element_size()
    of_one, of_other = (
        f"{text} ({bits(value).item() % 2**width:#x})" for text, value in zip(told, (one, other), strict=True)
    )
    return of_one, of_other


def _count(wrong: torch.Tensor) -> str:
    return f"{int(wrong.sum()):,} of {wrong.numel():,} elements"


def _shape(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "scalar"
