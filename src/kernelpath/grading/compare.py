"""Compare outputs with the truth, in the grader's process, which never imports a submission."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from kernelpath.course.problem import EXACT, Tolerance
from kernelpath.course.spec import Exercise
from kernelpath.device.messages import POISON
from kernelpath.grading.ground_truth import Magnitudes, expected_outputs, magnitudes_of, output_dtype
from kernelpath.grading.provenance import Observation, check_block_size, check_tensor_cores
from kernelpath.verdict import Finding, Verdict
from kernelpath.work.tensors import dtype_name

_MAX_EXAMPLES = 3

# The most outputs that a message names as wrong or right.
_MAX_LISTED = 9

# The wrong values that are needed so that a common mistake is not an accident.
_MIN_WRONG = 8

# The share of values that must look truncated. The others crossed a bfloat16 boundary before they were rounded.
_NEARLY_ALL = 0.9

_PIECE_BYTES = 16  # a swizzle moves pieces of this size as a whole
_PIECES_PER_SPAN = 8  # the widest swizzle permutes the pieces of 128 bytes
_CYCLE_ROWS = 8  # the mask of a swizzle repeats after this many rows
_MAX_CYCLES = 16  # the cycles that are examined, at most

_SINGLE_OUTPUT = "the output"
_ACCUMULATOR = torch.float64

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def check_observation(exercise: Exercise, observation: Observation) -> Finding | None:
    """Return a finding about a call, in the exercise's own words where it has a check of its own."""
    if observation.finding is not None:
        return observation.finding
    if finding := check_block_size(exercise, observation.transcript):
        return finding
    expected = expected_outputs(exercise, observation.inputs)
    if len(observation.outputs) != len(expected):
        cause = f"{exercise.entry} returned {len(observation.outputs)} tensors, expected {len(expected)}"
        return Finding(Verdict.WRONG_TYPE, cause)
    expected = resolve_choices(exercise, expected, observation.outputs)
    dtype = output_dtype(exercise, observation.inputs)
    # The stub of a kernel names its outputs. Other entries return them without names.
    names = exercise.outputs if exercise.is_kernel else (f"{exercise.entry}(…)",)
    magnitudes = magnitudes_of(exercise, observation.inputs)
    finding = check_outputs(observation.outputs, expected, exercise.tolerance, dtype, names, magnitudes)
    if finding is not None and finding.verdict is Verdict.WRONG_VALUES:
        cause = f"{finding.cause}{describe_inputs(finding, observation, expected)}"
        finding = replace(finding, cause=cause)
    # An exercise's own check may rely on outputs of the right shapes and dtypes that were written.
    comparable = finding is None or finding.verdict is Verdict.WRONG_VALUES
    own_finding = run_own_check(exercise, observation) if comparable else None
    return own_finding or finding or check_tensor_cores(exercise, observation)


def run_own_check(exercise: Exercise, observation: Observation) -> Finding | None:
    """Return the finding of the exercise's own check; None without a check."""
    result = exercise.check(observation.inputs, observation.outputs) if exercise.check is not None else None
    return Finding(Verdict.WRONG_VALUES, result) if isinstance(result, str) else result


def resolve_choices(
    exercise: Exercise, expected: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return the truth that matches the outputs' choices, where the statement leaves choices.

    Wrong shapes are left to `check_outputs`.
    """
    resolve = exercise.problem.settled
    if resolve is None or [truth.shape for truth in expected] != [output.shape for output in outputs]:
        return list(expected)
    return resolve(expected, [output.to(truth.device) for truth, output in zip(expected, outputs, strict=True)])


def check_repeatability(first: Observation, repeated_call: Observation) -> Finding | None:
    """Return a finding where two calls with the same inputs returned different bits."""
    for position, (output, repeated) in enumerate(zip(first.outputs, repeated_call.outputs, strict=True)):
        # As numbers, a NaN would differ from itself, and -0.0 would equal 0.0.
        differs = (bits(output) != bits(repeated)).flatten()
        if bool(differs.any()):
            index = int(differs.nonzero()[0])
            value, repeated_value = _describe_pair(output.flatten()[index], repeated.flatten()[index])
            advice = _ORDER_ADVICE if output.is_floating_point() else _INTEGER_ORDER_ADVICE
            cause = f"the same inputs gave {value} in one call and {repeated_value} in another; {advice}"
            return Finding(Verdict.WRONG_VALUES, cause, element=(position, index))
    return None


_ORDER_ADVICE = "float additions round, so their order must not depend on which block or warp comes first"
_INTEGER_ORDER_ADVICE = "the result depends on which block or warp comes first"


@dataclass(frozen=True)
class _Output:
    """An output with its truth.

    Attributes:
        position: The number of the output.
        description: The name of the whole output in messages.
        name: The name of its elements in messages, as in "dx[0, 3]".
        values: The output.
        truth: The right values.
        tolerance: The tolerance by dtype.
        magnitudes: See Problem.magnitudes.
    """

    position: int
    description: str
    name: str
    values: torch.Tensor
    truth: torch.Tensor
    tolerance: Mapping[str, Tolerance]
    magnitudes: Magnitudes | None

    @property
    def list_name(self) -> str:
        """The name of the output, or of the list that it is an element of."""
        return self.name.partition("[")[0]

    @cached_property
    def wrong(self) -> torch.Tensor:
        """The mask of the elements that are not within the tolerance."""
        wrong = mismatches(self.values, self.truth, self.own_tolerance)
        if bool(wrong.any()):
            # Magnitudes cost as much as the truth itself, so they are computed only for outputs that are not right
            # without them.
            wrong = mismatches(self.values, self.truth, self.own_tolerance, magnitude=self.magnitude)
        return wrong

    @property
    def own_tolerance(self) -> Tolerance:
        """The tolerance of the output's dtype."""
        return self.tolerance[dtype_name(self.values.dtype)]

    @property
    def magnitude(self) -> torch.Tensor | None:
        """The magnitude of each element; None without Problem.magnitudes."""
        return self.magnitudes()[self.position] if self.magnitudes is not None else None


def check_outputs(
    outputs: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    tolerance: Mapping[str, Tolerance],
    dtype: str | None = None,
    names: Sequence[str] = ("out",),
    magnitudes: Magnitudes | None = None,
) -> Finding | None:
    """Return the first fault of the outputs compared with the float64 (or exact) reference; None for right outputs.

    Shapes and dtypes of all outputs are checked before values.

    Args:
        outputs: The outputs.
        expected: The truth.
        tolerance: The tolerance by dtype.
        dtype: The dtype of the first output, where only one of the dtypes in `tolerance` is right.
        names: The statement's names of the outputs. Some cases have only the first outputs.
        magnitudes: See Problem.magnitudes. It is called only if an output is not within rtol and atol.
    """
    if len(names) < len(outputs):
        # Some exercises return several tensors for each name: they are numbered.
        outputs_per_name, remainder = divmod(len(outputs), len(names))
        names = [f"{name}[{index}]" for name in names for index in range(outputs_per_name)]
        if remainder or outputs_per_name == len(outputs):
            names = [f"output {position}" for position in range(len(outputs))]
    names = names[: len(outputs)]
    descriptions = names if len(names) > 1 else (_SINGLE_OUTPUT,)
    compared = [
        _Output(position, description, name, output.to(truth.device), truth, tolerance, magnitudes)
        for position, (description, name, output, truth) in enumerate(
            zip(descriptions, names, outputs, expected, strict=True)
        )
    ]
    for output in compared:
        allowed = (dtype,) if dtype and output.position == 0 else tuple(tolerance)
        if finding := _check_type(output.description, output.values, output.truth, allowed):
            return finding
    for output in compared:
        if finding := _check_values(output):
            return replace(finding, cause=f"{finding.cause}{_describe_other_outputs(compared, output)}")
    return None


def _describe_other_outputs(outputs: Sequence[_Output], described: _Output) -> str:
    """Name the other outputs that are wrong, then those that are right, or count them if there are many.

    A right output excludes mistakes in the steps before it. A list counts as one output.
    """
    are_right: dict[str, bool] = {}
    for output in outputs:
        name = output.list_name
        are_right[name] = are_right.get(name, True) and not bool(output.wrong.any())
    wrong = [name for name, is_right in are_right.items() if not is_right and name != described.list_name]
    right = [name for name, is_right in are_right.items() if is_right]
    if len(are_right) > _MAX_LISTED:
        return f"; of the other outputs, {len(wrong):,} are wrong and {len(right):,} are right"
    also_wrong = f"; {_join_with_verb(wrong)} wrong, too" if wrong else ""
    return also_wrong + (f"; {_join_with_verb(right)} right" if right else "")


def _join_with_verb(names: Sequence[str]) -> str:
    """Return names with their verb: "dx is", or "dx, dw and db are"."""
    *first_names, last_name = names
    return f"{', '.join(first_names)} and {last_name} are" if first_names else f"{last_name} is"


def _check_type(name: str, output: torch.Tensor, truth: torch.Tensor, allowed: Sequence[str]) -> Finding | None:
    if output.shape != truth.shape:
        return Finding(Verdict.WRONG_SHAPE, f"{name} has shape {tuple(output.shape)}, expected {tuple(truth.shape)}")
    dtype = dtype_name(output.dtype)
    if dtype not in allowed:
        return Finding(Verdict.WRONG_DTYPE, f"{name} has dtype {dtype}, expected {' or '.join(allowed)}")
    return None


def _check_values(output: _Output) -> Finding | None:
    wrong, values, truth = output.wrong, output.values, output.truth
    if not bool(wrong.any()):
        return None
    # An element that still holds the poison was never written, which explains more than a wrong value does.
    # A right integer may have the bits of the poison, so only wrong elements are examined.
    poisoned = wrong & is_poison(values)
    if bool(poisoned.any()):
        cause = f"{_describe_count(poisoned)} of {output.description} were never written, {describe_location(poisoned)}"
        return Finding(Verdict.NOT_WRITTEN, cause, element=(output.position, int(poisoned.flatten().nonzero()[0])))
    examples = _describe_examples(wrong, values, truth, output.name)
    cause = f"{_describe_count(wrong)} of {output.description} are wrong, {examples}{_describe_worst(output)}"
    if (factor := _common_factor(wrong, values, truth, output.tolerance)) is not None:
        cause += f"; all are {factor:.4g} times what is expected"
    if values.dtype == torch.bfloat16 and int(wrong.sum()) >= _MIN_WRONG and are_truncated(values, truth):
        cause += "; they are cut off, not rounded to the nearest bfloat16"
    if is_swizzled(output):
        cause += f"; {_SWIZZLE_ADVICE}"
    return Finding(Verdict.WRONG_VALUES, cause, element=(output.position, int(wrong.flatten().nonzero()[0])))


_SWIZZLE_ADVICE = (
    "each 16-byte piece is where a swizzle puts another piece of its row: "
    "the writer and the reader of shared memory use different swizzles"
)


def is_swizzled(output: _Output) -> bool:
    """Return whether an output is right except for pieces of 16 bytes that are permuted as a swizzle permutes them.

    A swizzle of shared memory permutes the pieces of 128 bytes, or of fewer: it XORs the number of a piece with a mask
    that depends on the row. For each row and each span of 128 bytes, this tries all masks and looks for one that
    explains the output. With the same mask in all rows the mistake is another one, not a swizzle.
    """
    values, truth = output.values, output.truth
    if values.dim() < 2:
        return False
    columns = values.shape[-1]
    is_wrong = output.wrong.reshape(-1, columns).any(1)
    cycles = (is_wrong.nonzero().flatten() // _CYCLE_ROWS).unique()[:_MAX_CYCLES]
    # A partial last cycle is left out, since the rows of a cycle are compared with each other.
    cycles = cycles[(cycles + 1) * _CYCLE_ROWS <= len(is_wrong)]
    if not len(cycles):
        return False
    rows = (cycles[:, None] * _CYCLE_ROWS + torch.arange(_CYCLE_ROWS, device=values.device)).flatten()
    piece = _PIECE_BYTES // values.element_size()
    column = torch.arange(-(-columns // (_PIECES_PER_SPAN * piece)) * _PIECES_PER_SPAN * piece, device=values.device)
    values, truth = (tensor.reshape(-1, columns)[rows] for tensor in (values, truth))
    magnitude = None if output.magnitude is None else output.magnitude.reshape(-1, columns)[rows]
    tolerance = output.own_tolerance
    scale = root_mean_square(output.truth)
    fits = []
    for mask in range(_PIECES_PER_SPAN):
        source = (column // piece ^ mask) * piece + column % piece
        is_inside = (column < columns) & (source < columns)
        target_columns = column[is_inside]
        source_columns = source[is_inside]
        source_magnitude = None if magnitude is None else magnitude[:, source_columns]
        wrong = torch.zeros(len(rows), len(column), dtype=torch.bool, device=values.device)
        wrong[:, is_inside] = mismatches(
            values[:, target_columns], truth[:, source_columns], tolerance, scale, source_magnitude
        )
        # In a matrix of few columns, a mask may lead to no column at all, and explains nothing. The last span of a wide
        # matrix may be as narrow, but there the mask is tested in the other spans.
        fits.append(is_inside.any() & ~wrong.view(len(rows), -1, _PIECES_PER_SPAN * piece).any(2))
    fitting = torch.stack(fits)  # by mask, row, and span of 128 bytes
    masks = fitting.int().argmax(0).view(len(cycles), _CYCLE_ROWS, -1)  # the first mask that fits
    differ = (masks != masks[:, :1]).any(1).any(1)
    return bool(fitting.any(0).all()) and bool(differ.all())


def _common_factor(
    wrong: torch.Tensor, output: torch.Tensor, truth: torch.Tensor, tolerance: Mapping[str, Tolerance]
) -> float | None:
    """Return the factor by which a whole output is too large or too small, where nothing else is wrong with it."""
    # The ratio of small values is mostly rounding error, so only large ones determine the factor.
    large = wrong & (truth.abs() > 0.1 * root_mean_square(truth)) & torch.isfinite(truth)
    if not truth.is_floating_point() or int(large.sum()) < _MIN_WRONG:
        return None
    # The median, because single elements may be wrong for another reason as well.
    factor = float((output[large].double() / truth[large].double()).median())
    # A factor of 0 explains nothing: the examples show that the output is zeros.
    if factor == 0 or not math.isfinite(factor):
        return None
    unexplained = mismatches(output, factor * truth, tolerance[dtype_name(output.dtype)])
    return None if bool(unexplained.any()) else factor


def mismatches(
    output: torch.Tensor,
    truth: torch.Tensor,
    tolerance: Tolerance,
    rms: float | torch.Tensor | None = None,
    magnitude: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the mask of the elements that are not within tolerance. NaN and infinity must be where the truth has them.

    A truth that was only moved has the dtype of the output and no tolerance: then all bits must be equal.

    Args:
        output: The values.
        truth: The right values.
        tolerance: The tolerance.
        rms: The root mean square of the whole truth, where `truth` is only a sample of it; one for each element, where
            it consists of samples of several.
        magnitude: The magnitude of each element, as Problem.magnitudes computes it. Without it mtol does not count.
    """
    if not truth.is_floating_point():
        return output != truth
    if tolerance == EXACT and truth.dtype == output.dtype:
        return bits(output) != bits(truth)
    # In the precision of the truth, float64: the comparison itself must not round.
    values = output.to(truth.dtype)
    is_finite = torch.isfinite(truth)
    # Every comparison with NaN is false. The test is therefore for being close, so that a NaN output counts as wrong
    # (C3 in docs/attacks.md).
    is_close = (values - truth).abs() <= allowed_errors(truth, tolerance, rms, magnitude)
    is_same = (values == truth) | (torch.isnan(values) & torch.isnan(truth))
    # Where the truth is infinite or NaN, the error has no meaning, and the value must be the same.
    return ~torch.where(is_finite, is_close, is_same)


def allowed_errors(
    truth: torch.Tensor,
    tolerance: Tolerance,
    rms: float | torch.Tensor | None = None,
    magnitude: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the error that each element may have; the arguments are those of `mismatches`."""
    scale = root_mean_square(truth) if rms is None else rms
    relative = tolerance.rtol * truth.abs()
    allowed = relative + tolerance.atol * scale
    if magnitude is None:
        return allowed
    # An infinite magnitude beside a finite truth would excuse every value, so it excuses none.
    return torch.maximum(allowed, relative + tolerance.mtol * magnitude.nan_to_num(nan=0.0, posinf=0.0))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of a float tensor as integers of the same size."""
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()])


def are_truncated(outputs: torch.Tensor, truth: torch.Tensor) -> bool:
    """Return whether nearly all bfloat16 values are the upper halves of float32 values, where rounding gives others.

    Right values count as well: of values that are slightly too small, every wrong one looks truncated.
    """
    # A bfloat16 is the upper half of a float32, so clearing the lower half truncates.
    upper = (bits(truth.float()) & -(1 << 16)).view(torch.float32)
    distinguishes = torch.isfinite(truth) & (truth.to(torch.bfloat16).float() != upper)
    return bool(distinguishes.any()) and float((outputs.float() == upper)[distinguishes].double().mean()) > _NEARLY_ALL


def root_mean_square(truth: torch.Tensor) -> float:
    """Return the root mean square of the finite elements; 0 without any, and for integers, which have no tolerance."""
    return root_mean_squares([truth])[0]


def root_mean_squares(truths: Sequence[torch.Tensor]) -> list[float]:
    """Return the root mean square of each truth, with one transfer for all."""
    means = [
        _mean_square(truth) if truth.is_floating_point() else torch.zeros((), dtype=_ACCUMULATOR) for truth in truths
    ]
    return [math.sqrt(mean) for mean in torch.stack([mean.to(truths[0].device) for mean in means]).tolist()]


def _mean_square(truth: torch.Tensor) -> torch.Tensor:
    finite = torch.isfinite(truth)
    # `where` has made a copy, so the truth itself stays as it is.
    return truth.where(finite, 0).square_().sum(dtype=_ACCUMULATOR) / finite.sum().clamp(min=1)


def find_wrong_sample(
    outputs: Sequence[torch.Tensor],
    truths: Sequence[torch.Tensor],
    tolerance: Mapping[str, Tolerance],
    scales: Sequence[float],
    magnitudes: Sequence[torch.Tensor] | None = None,
) -> torch.Tensor | None:
    """Return the mask of the wrong elements of the first sample that has any; None where all samples are right.

    There may be samples of hundreds of outputs, so samples of one dtype are compared together.

    Args:
        outputs: Samples of the outputs, of equal length.
        truths: The same samples of the truths.
        tolerance: The tolerance by dtype.
        scales: The root mean square of each whole truth.
        magnitudes: The same samples of Problem.magnitudes.
    """
    dtypes = [(output.dtype, truth.dtype) for output, truth in zip(outputs, truths, strict=True)]
    for dtype_pair in dict.fromkeys(dtypes):
        indices = [index for index, pair in enumerate(dtypes) if pair == dtype_pair]
        output, truth = (torch.stack([samples[index] for index in indices]) for samples in (outputs, truths))
        rms = torch.tensor([[scales[index]] for index in indices], dtype=_ACCUMULATOR).to(truth.device)
        magnitude = torch.stack([magnitudes[index] for index in indices]) if magnitudes is not None else None
        wrong = mismatches(output, truth, tolerance[dtype_name(output.dtype)], rms, magnitude)
        if bool(wrong.any()):
            return wrong[int(wrong.any(1).nonzero()[0])]
    return None


def is_poison(output: torch.Tensor) -> torch.Tensor:
    """Return the mask of the elements that still hold the poison pattern, bit for bit.

    Elements of one byte never count as poisoned.
    """
    size = output.element_size()
    # Half of the pattern is an ordinary value of an int8 or a uint8, so it proves nothing.
    if size == 1:
        return torch.zeros_like(output, dtype=torch.bool)
    # The pattern has two bytes, so an element of more bytes holds it several times.
    halves = output.contiguous().view(-1).view(torch.int16).view(-1, size // 2)
    return (halves == POISON).all(1).view(output.shape)


def describe_location(wrong: torch.Tensor) -> str:
    """Describe the smallest box that holds every wrong element: "rows 0..32, columns 992..999 of 33 x 1000"."""
    indices = wrong.nonzero()
    if indices.numel() == 0 or wrong.numel() == 1:
        return "the only element"
    names = ("rows", "columns") if wrong.dim() == 2 else tuple(f"axis {axis}:" for axis in range(wrong.dim()))
    names = ("elements",) if wrong.dim() == 1 else names
    spans = (
        f"{name} {int(axis.min())}..{int(axis.max())}" for name, axis in zip(names, indices.unbind(1), strict=True)
    )
    return f"within {', '.join(spans)} of {_describe_shape(wrong)}"


def _describe_examples(wrong: torch.Tensor, output: torch.Tensor, truth: torch.Tensor, name: str) -> str:
    examples = []
    for index in wrong.nonzero()[:_MAX_EXAMPLES].tolist():
        value, expected = _describe_pair(output[tuple(index)], truth[tuple(index)])
        examples.append(f"{_describe_element(name, index)} = {value}, expected {expected}")
    return f"{describe_location(wrong)}; first: {'; '.join(examples)}"


def _describe_worst(output: _Output) -> str:
    """Say by how much the worst element is off and how much is allowed; empty where nothing but equality is right.

    The worst element exceeds what it is allowed by the largest factor. NaN and infinity are off by no number.
    """
    values, truth = output.values, output.truth
    if not truth.is_floating_point() or output.own_tolerance == EXACT:
        return ""
    values = values.to(truth.dtype)
    measurable = output.wrong & torch.isfinite(truth) & torch.isfinite(values)
    if not bool(measurable.any()):
        return ""
    error = (values - truth).abs()
    allowed = allowed_errors(truth, output.own_tolerance, magnitude=output.magnitude)
    excess = torch.where(measurable, error / allowed, -1.0)
    # Where nothing is allowed, every error is infinitely too large, and the largest one is the worst.
    candidates = torch.where(excess == excess.max(), error, -1.0)
    # torch.unravel_index would import sympy, which takes most of a second.
    index = (candidates == candidates.max()).nonzero()[0].tolist()
    is_finite = "" if bool(torch.isfinite(values[output.wrong]).all()) else " finite value"
    off, limit = (tensor[tuple(index)].item() for tensor in (error, allowed))
    texts = (f"{off:.3g}", f"{limit:.3g}")
    if texts[0] == texts[1]:
        texts = (f"{off:.9g}", f"{limit:.9g}")
    return f"; worst{is_finite}: {_describe_element(output.name, index)} is off by {texts[0]}, allowed {texts[1]}"


def _describe_element(name: str, index: Sequence[int]) -> str:
    return f"{name}[{', '.join(map(str, index))}]"


def _describe_pair(first: torch.Tensor, second: torch.Tensor) -> tuple[str, str]:
    """Return two different values as texts, with their bits where the texts would be equal, as for two NaNs."""
    texts = (f"{first.item():.9g}", f"{second.item():.9g}")
    if texts[0] != texts[1] or first.dtype != second.dtype or not first.is_floating_point():
        return texts
    width = 8 * first.element_size()
    # `bits` returns signed integers. The remainder shows a negative one as its bits.
    first_text, second_text = (
        f"{text} ({bits(value).item() % 2**width:#x})" for text, value in zip(texts, (first, second), strict=True)
    )
    return first_text, second_text


def _describe_count(wrong: torch.Tensor) -> str:
    return f"{int(wrong.sum()):,} of {wrong.numel():,} elements"


def _describe_shape(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "scalar"


def describe_inputs(finding: Finding, observation: Observation, expected: Sequence[torch.Tensor]) -> str:
    """Say how large the inputs were, where the first wrong value is NaN or infinite and the right one is neither.

    Of matrices with as many rows as the output, only the row of that value counts. The text is empty where there is
    nothing to say.
    """
    if finding.element is None:
        return ""
    position, index = finding.element
    output, truth = observation.outputs[position], expected[position]
    if not truth.is_floating_point() or not bool(torch.isfinite(truth.flatten()[index])):
        return ""
    # torch.isfinite does not take float8.
    if bool(torch.isfinite(output.flatten()[index].double())):
        return ""
    row = index // max(output[0].numel(), 1) if output.dim() else 0
    floats = [value for value in observation.inputs if isinstance(value, torch.Tensor) and value.is_floating_point()]
    rows = [tensor[row] for tensor in floats if tensor.dim() > 1 and output.dim() and len(tensor) == len(output)]
    selected = [tensor.double() for tensor in rows or floats if tensor.numel()]
    if not selected:
        return ""
    low = min(float(tensor.min()) for tensor in selected)
    high = max(float(tensor.max()) for tensor in selected)
    if math.isnan(low) or math.isnan(high):
        return ""
    part = f"row {row}" if output.dim() == 2 else f"index {row} along the first dimension"
    subject = f"the inputs of {part}" if rows else "the inputs"
    return f"; {subject} lie between {low:.3g} and {high:.3g}: a value on the way overflows, or 0 is divided by 0"
