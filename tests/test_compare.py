"""The comparison with the truth: poison, NaN and infinity, and tolerances that bite."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from kernelpath.course import registry
from kernelpath.course.problem import EXACT, Tolerance
from kernelpath.device.messages import POISON
from kernelpath.grading import compare
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import Finding, Verdict
from kernelpath.work.tensors import dtype_name, fingerprint, poison_

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16)
LOOSE = Tolerance(0.1, 0.1)


def poisoned(count: int, dtype: torch.dtype) -> torch.Tensor:
    return poison_(torch.empty(count * dtype.itemsize, dtype=torch.uint8)).view(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_poison_is_found_in_every_dtype_of_two_bytes_or_more(dtype: torch.dtype) -> None:
    output = poisoned(8, dtype)
    output[3] = 1
    assert compare.is_poison(output).tolist() == [True, True, True, False, True, True, True, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_poison_is_no_number(dtype: torch.dtype) -> None:
    assert torch.isnan(poisoned(4, dtype)).all()


def test_one_byte_is_never_called_poison() -> None:
    assert not compare.is_poison(poisoned(8, torch.int8)).any()


def test_neither_another_nan_nor_half_of_the_pattern_is_poison() -> None:
    assert not compare.is_poison(torch.full((2,), math.nan)).any()
    assert not compare.is_poison(torch.tensor([POISON, POISON << 16], dtype=torch.int32)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_poison_left_is_not_written_whatever_the_tolerance(dtype: torch.dtype) -> None:
    output = poisoned(1000, dtype)
    output[:990] = 1
    finding = compare.check_outputs([output], [torch.ones(1000).double()], {dtype_name(dtype): LOOSE})
    assert finding is not None
    assert finding.verdict is Verdict.NOT_WRITTEN
    assert "10 of 1,000 elements of the output" in finding.cause
    assert "elements 990..999 of 1000" in finding.cause


def test_an_integer_that_looks_like_poison_passes_where_it_is_right() -> None:
    truth = poisoned(4, torch.int32)
    assert compare.check_outputs([truth.clone()], [truth], {"int32": EXACT}) is None
    one_wrong = truth.clone()
    one_wrong[3] = 7
    finding = compare.check_outputs([one_wrong], [truth], {"int32": EXACT})
    assert finding is not None
    assert finding.verdict is Verdict.WRONG_VALUES


@pytest.mark.parametrize(
    ("value", "truth", "right"),
    [
        (math.nan, 1.0, False),
        (math.inf, 1.0, False),
        (1.0, math.nan, False),
        (1.0, math.inf, False),
        (-math.inf, math.inf, False),
        (math.nan, math.inf, False),
        (math.inf, math.nan, False),
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (-math.inf, -math.inf, True),
        (1.05, 1.0, True),
        (-0.0, 0.0, True),
    ],
)
def test_nan_and_infinity_must_be_where_the_truth_has_them(value: float, truth: float, right: bool) -> None:
    output, expected = torch.tensor([1.0, value]), torch.tensor([1.0, truth], dtype=torch.float64)
    assert bool(compare.mismatches(output, expected, LOOSE)[1]) is not right


def test_infinity_in_the_truth_does_not_widen_the_tolerance() -> None:
    truth = torch.tensor([math.inf, 1.0, -1.0], dtype=torch.float64)
    assert compare.root_mean_square(truth) == 1.0
    assert compare.mismatches(torch.tensor([math.inf, 1.2, -1.0]), truth, LOOSE).tolist() == [False, True, False]


def test_a_sample_of_integers_is_compared_exactly() -> None:
    truth = torch.tensor([3, 1 << 24, (1 << 24) + 1], dtype=torch.int32)
    rms = compare.root_mean_square(truth)
    assert not compare.mismatches(truth, truth, EXACT, rms).any()
    assert compare.mismatches(truth - 1, truth, EXACT, rms).all()


def test_root_mean_squares_are_those_of_each_alone() -> None:
    tensors = [torch.tensor([3.0, -3.0]), torch.tensor([math.nan, math.inf, 2.0], dtype=torch.float64)]
    tensors += [torch.tensor([-math.inf]), torch.tensor([5, 7]), torch.zeros(0)]
    assert compare.root_mean_squares(tensors) == [3.0, 2.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("wrong", [None, 0, 1, 2])
def test_each_sample_is_judged_by_its_own_dtype_and_scale(wrong: int | None) -> None:
    """An error may be wrong at the scale 1 and right at 1000, or wrong in float32 and right in bfloat16."""
    tolerance = {"float32": Tolerance(0.0, 1e-3), "bfloat16": Tolerance(0.0, 1e-1)}
    places = [torch.full((4,), value, dtype=torch.float64) for value in (1.0, 2.0, 1.0)]
    outputs = [places[0].float(), places[1].float() + 0.5, places[2].bfloat16() + 0.0625]
    if wrong is not None:
        outputs[wrong][3] += 2.0
    mismatches = compare.find_wrong_sample(outputs, places, tolerance, [1.0, 1000.0, 1.0])
    assert (None if mismatches is None else mismatches.tolist()) == (
        None if wrong is None else [False, False, False, True]
    )


@pytest.mark.parametrize(("rtol", "right"), [(1.0e-3, True), (0.9e-3, False)])
def test_the_declared_rtol_decides(rtol: float, right: bool) -> None:
    truth = torch.tensor([1000.0, 2000.0], dtype=torch.float64)
    output = torch.tensor([1000.0, 2001.95], dtype=torch.float64)
    assert (compare.check_outputs([output], [truth], {"float64": Tolerance(rtol, 0.0)}) is None) is right


@pytest.mark.parametrize(("atol", "right"), [(0.02, True), (0.019, False)])
def test_the_declared_atol_decides_in_units_of_the_root_mean_square(atol: float, right: bool) -> None:
    truth = torch.tensor([5.0, -5.0, 5.0, 0.0], dtype=torch.float64)
    truth[3] = 5.0
    output = truth - 0.0999
    assert (compare.check_outputs([output], [truth], {"float64": Tolerance(0.0, atol)}) is None) is right


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_zeros_are_wrong_at_every_scale(scale: float) -> None:
    truth = scale * torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    finding = compare.check_outputs([torch.zeros(1000).double()], [truth], {"float64": Tolerance(0.5, 0.499)})
    assert finding is not None


def test_integers_are_compared_exactly() -> None:
    truth = torch.tensor([1 << 53, (1 << 53) + 1])
    assert compare.check_outputs([truth.clone()], [truth], {"int64": EXACT}) is None
    assert compare.check_outputs([truth - 1], [truth], {"int64": LOOSE}) is not None


@pytest.mark.parametrize(
    ("output", "verdict", "expected_cause"),
    [
        (torch.ones(2, 3), Verdict.WRONG_SHAPE, "the output has shape (2, 3), expected (3, 2)"),
        (torch.ones(6), Verdict.WRONG_SHAPE, "the output has shape (6,), expected (3, 2)"),
        (torch.ones(3, 2).half(), Verdict.WRONG_DTYPE, "the output has dtype float16, expected float32 or bfloat16"),
        (2 * torch.ones(3, 2), Verdict.WRONG_VALUES, "6 of 6 elements of the output are wrong"),
    ],
)
def test_the_first_fault_is_named(output: torch.Tensor, verdict: Verdict, expected_cause: str) -> None:
    tolerance = {"float32": LOOSE, "bfloat16": LOOSE}
    finding = compare.check_outputs([output], [torch.ones(3, 2).double()], tolerance)
    assert finding is not None
    assert finding.verdict is verdict
    assert expected_cause in finding.cause


@pytest.mark.parametrize(("low", "is_named"), [(0, True), (1, False)])
def test_truncated_bfloat16_is_named(low: int, is_named: bool) -> None:
    truth = torch.linspace(1, 2, 1000, dtype=torch.float64)
    cut = ((compare.bits(truth.float()) >> 16) + low << 16).view(torch.float32).bfloat16()
    finding = compare.check_outputs([cut], [truth], {"bfloat16": Tolerance(2.0**-9, 0.0)})
    assert finding is not None
    assert ("cut off, not rounded" in finding.cause) is is_named


def test_bfloat16_that_is_a_little_too_small_is_not_called_cut_off() -> None:
    """All that are wrong are the next lower value, as if cut off; those that are right are rounded to the nearest."""
    truth = torch.linspace(1, 2, 1000, dtype=torch.float64)
    finding = compare.check_outputs([(0.9975 * truth).bfloat16()], [truth], {"bfloat16": Tolerance(2.0**-8, 0.0)})
    assert finding is not None
    assert "cut off" not in finding.cause


def test_few_values_that_happen_to_be_below_the_truth_are_not_called_cut_off() -> None:
    truth = torch.linspace(1, 2, 1000, dtype=torch.float64)
    output = truth.bfloat16()
    output[500:540] = (compare.bits(truth[500:540].float()) >> 16 << 16).view(torch.float32).bfloat16()
    finding = compare.check_outputs([output], [truth], {"bfloat16": Tolerance(2.0**-8, 0.0)})
    assert finding is not None
    assert "cut off" not in finding.cause


def test_the_first_output_may_be_held_to_one_dtype() -> None:
    ones, tolerance = torch.ones(3), {"float32": LOOSE, "bfloat16": LOOSE}
    assert compare.check_outputs([ones, ones], [ones.double()] * 2, tolerance, "float32") is None
    assert compare.check_outputs([ones.bfloat16(), ones], [ones.double()] * 2, tolerance, "bfloat16") is None
    finding = compare.check_outputs([ones, ones], [ones.double()] * 2, tolerance, "bfloat16")
    assert finding is not None
    assert finding.cause == "output 0 has dtype float32, expected bfloat16"


def test_the_type_of_every_output_comes_before_values() -> None:
    ones = torch.ones(3)
    finding = compare.check_outputs([2 * ones, ones.half()], [ones.double()] * 2, {"float32": LOOSE})
    assert finding is not None
    assert finding.cause == "output 1 has dtype float16, expected float32"


def test_outputs_have_the_names_of_the_statement() -> None:
    ones = torch.ones(3)
    finding = compare.check_outputs([ones, 2 * ones], [ones.double()] * 2, {"float32": LOOSE}, names=("y", "h"))
    assert finding is not None
    assert finding.cause.startswith("3 of 3 elements of h are wrong, within elements 0..2 of 3; first: h[0] = 2")


def test_a_case_with_the_first_outputs_alone_names_them() -> None:
    ones = torch.ones(4)
    finding = compare.check_outputs([2 * ones], [ones.double()], {"float32": LOOSE}, names=("h", "dx", "dw"))
    assert finding is not None
    assert "first: h[0] = 2, expected 1" in finding.cause


def test_wrong_values_are_placed_and_shown() -> None:
    truth = torch.arange(12.0, dtype=torch.float64).view(3, 4)
    output = truth.clone()
    output[1:, 2] = -1
    finding = compare.check_outputs([output], [truth], {"float64": EXACT})
    assert finding is not None
    assert "within rows 1..2, columns 2..2 of 3 x 4" in finding.cause
    assert "out[1, 2] = -1, expected 6; out[2, 2] = -1, expected 10" in finding.cause


@pytest.mark.parametrize(
    ("times", "is_named"), [(0.9, True), (-1.0, True), (2.0, True), (0.0, False), (math.nan, False)]
)
def test_values_that_are_all_too_large_by_one_factor_say_it(times: float, is_named: bool) -> None:
    truth = torch.randn(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    finding = compare.check_outputs([(times * truth).float()], [truth], {"float32": Tolerance(1e-6, 1e-6)})
    assert finding is not None
    assert (f"all are {times:.4g} times what is expected" in finding.cause) is is_named
    assert ("times what is expected" in finding.cause) is is_named


def test_no_factor_is_named_if_something_else_is_wrong() -> None:
    truth = torch.arange(1.0, 101.0, dtype=torch.float64)
    output = 2 * truth.float()
    output[50] = 51
    finding = compare.check_outputs([output], [truth], {"float32": Tolerance(1e-6, 1e-6)})
    assert finding is not None
    assert "times what" not in finding.cause


def test_outputs_that_are_right_beside_a_wrong_one_are_named() -> None:
    ones = torch.ones(3, dtype=torch.float64)
    outputs = [2 * ones, ones, ones, ones, ones, 2 * ones]
    finding = compare.check_outputs(outputs, [ones] * 6, {"float64": LOOSE}, names=("p", "m", "v"))
    assert finding is not None
    assert finding.cause.endswith(
        "first: p[0][0] = 2, expected 1; p[0][1] = 2, expected 1; p[0][2] = 2, expected 1; "
        "worst: p[0][0] is off by 1, allowed 0.2; v is wrong, too; m is right"
    )


@pytest.mark.parametrize(
    ("wrong", "expected_suffix"),
    [
        ({"dx"}, "; h and dw are right"),
        ({"dx", "dw"}, "; dw is wrong, too; h is right"),
        ({"h", "dx", "dw"}, "; dx and dw are wrong, too"),
    ],
)
def test_all_outputs_are_named_if_one_is_wrong(wrong: set[str], expected_suffix: str) -> None:
    ones = torch.ones(3, dtype=torch.float64)
    names = ("h", "dx", "dw")
    outputs = [2 * ones if name in wrong else ones for name in names]
    finding = compare.check_outputs(outputs, [ones] * 3, {"float64": LOOSE}, names=names)
    assert finding is not None
    assert finding.cause.partition("allowed 0.2")[2] == expected_suffix


def test_an_output_that_was_never_written_does_not_hide_a_wrong_one() -> None:
    ones = torch.ones(3, dtype=torch.float64)
    outputs = [poisoned(3, torch.float32), 2 * ones.float()]
    finding = compare.check_outputs(outputs, [ones] * 2, {"float32": LOOSE}, names=("dx", "dw"))
    assert finding is not None
    assert finding.verdict is Verdict.NOT_WRITTEN
    assert finding.cause.endswith("; dw is wrong, too")


def test_many_outputs_are_counted() -> None:
    ones = torch.ones(3, dtype=torch.float64)
    outputs = [2 * ones, 2 * ones, *[ones] * 9]
    finding = compare.check_outputs(outputs, [ones] * 11, {"float64": LOOSE}, names=[f"y{i}" for i in range(11)])
    assert finding is not None
    assert finding.cause.endswith("; of the other outputs, 1 are wrong and 9 are right")


def test_the_worst_element_is_named_with_its_error_and_what_is_allowed() -> None:
    """The error of 0.5 is the largest, but the error of 0.3 exceeds its allowance by a larger factor."""
    truth = torch.tensor([1.0, 1.0, 10.0, 1.0], dtype=torch.float64)
    output = truth + torch.tensor([0.02, 0.3, 0.5, 0.0], dtype=torch.float64)
    finding = compare.check_outputs([output], [truth], {"float64": Tolerance(0.01, 0.0)})
    assert finding is not None
    assert finding.cause.endswith("; worst: out[1] is off by 0.3, allowed 0.01")


def test_the_largest_error_is_the_worst_where_nothing_is_allowed() -> None:
    truth = torch.tensor([0.0, 0.0, 0.0, 9.0], dtype=torch.float64)
    output = truth + torch.tensor([0.1, 0.3, 0.2, 5.0], dtype=torch.float64)
    finding = compare.check_outputs([output], [truth], {"float64": Tolerance(0.1, 0.0)})
    assert finding is not None
    assert finding.cause.endswith("; worst: out[1] is off by 0.3, allowed 0")


def test_the_allowance_counts_the_magnitude() -> None:
    truth, magnitude = (torch.tensor(values, dtype=torch.float64) for values in ([[0.0], [0.0]], [[1.0], [200.0]]))
    tolerance = {"float64": Tolerance(0.0, 0.0, mtol=1e-3)}
    finding = compare.check_outputs([truth + 0.25], [truth], tolerance, magnitudes=lambda: [magnitude])
    assert finding is not None
    assert finding.cause.endswith("; worst: out[0, 0] is off by 0.25, allowed 0.001")
    finding = compare.check_outputs([truth + 0.2001], [truth + 0.0], tolerance, magnitudes=lambda: [200 + 0 * truth])
    assert finding is not None
    assert finding.cause.endswith("; worst: out[0, 0] is off by 0.2001, allowed 0.2")


def test_nan_is_off_by_no_number() -> None:
    truth = torch.ones(3, dtype=torch.float64)
    tolerance = {"float64": LOOSE}
    some_nan = compare.check_outputs([torch.tensor([math.nan, 2.0, 1.0]).double()], [truth], tolerance)
    assert some_nan is not None
    assert some_nan.cause.endswith("; worst finite value: out[1] is off by 1, allowed 0.2")
    all_nan = compare.check_outputs([truth * math.nan], [truth], tolerance)
    assert all_nan is not None
    assert "off by" not in all_nan.cause


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_where_only_equality_is_right_nothing_is_allowed(dtype: torch.dtype) -> None:
    truth = torch.ones(3, dtype=dtype)
    finding = compare.check_outputs([truth + 1], [truth], {dtype_name(dtype): EXACT})
    assert finding is not None
    assert "allowed" not in finding.cause


def test_the_bits_of_a_call_must_come_again() -> None:
    first, nan = torch.tensor([0.0, 0.1, 0.0]), torch.tensor([math.nan])

    def finding(second_result: torch.Tensor, than: torch.Tensor = first) -> Finding | None:
        return compare.check_repeatability(Observation((), [nan, than]), Observation((), [nan, second_result]))

    assert finding(first.clone()) is None
    one_bit = finding(torch.nextafter(first, torch.tensor([0.0, 1.0, 0.0])))
    assert one_bit is not None
    assert (one_bit.verdict, one_bit.element) == (Verdict.WRONG_VALUES, (1, 1))
    assert "gave 0.100000001 in one call and 0.100000009 in another" in one_bit.cause
    assert finding(torch.tensor([0.0, 0.1, -0.0])) is not None


# Properties, whatever the numbers

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
tensors = st.lists(numbers, min_size=1, max_size=40).map(lambda values: torch.tensor(values, dtype=torch.float64))
tolerances = st.builds(Tolerance, st.floats(1e-7, 0.01), st.floats(0, 0.01))
specials = st.sampled_from([math.nan, math.inf, -math.inf])


def verdict(output: torch.Tensor, truth: torch.Tensor, tolerance: Tolerance = EXACT) -> Verdict | None:
    finding = compare.check_outputs([output], [truth], {dtype_name(output.dtype): tolerance})
    return finding.verdict if finding else None


@given(
    truth=tensors,
    tolerance=tolerances,
    place=st.integers(0, 39),
    beyond=st.floats(1.001, 1e3),
    sign=st.sampled_from([-1, 1]),
)
def test_the_tolerance_is_where_it_is_said_to_be(
    truth: torch.Tensor, tolerance: Tolerance, place: int, beyond: float, sign: int
) -> None:
    place %= truth.numel()
    allowed = tolerance.rtol * float(truth[place].abs()) + tolerance.atol * compare.root_mean_square(truth)
    assume(allowed > 1e-9)
    inside, past = truth.clone(), truth.clone()
    inside[place] += sign * allowed * 0.999
    past[place] += sign * allowed * beyond
    assert verdict(inside, truth, tolerance) is None
    assert verdict(past, truth, tolerance) is Verdict.WRONG_VALUES


@given(truth=tensors, special=specials, different_value=specials | numbers, place=st.integers(0, 39))
def test_nan_and_infinity_pass_exactly_where_the_truth_has_them(
    truth: torch.Tensor, special: float, different_value: float, place: int
) -> None:
    assume(not (different_value == special or (math.isnan(different_value) and math.isnan(special))))
    place %= truth.numel()
    right, wrong = truth.clone(), truth.clone()
    right[place], wrong[place] = special, different_value
    assert verdict(right, right.clone(), LOOSE) is None
    assert verdict(wrong, right, LOOSE) is Verdict.WRONG_VALUES
    assert verdict(right, wrong, LOOSE) is Verdict.WRONG_VALUES


@given(truth=tensors, scale=st.floats(1e-9, 1e9), tolerance=tolerances)
def test_zeros_never_pass_however_small_the_truth(truth: torch.Tensor, scale: float, tolerance: Tolerance) -> None:
    truth = truth * scale
    assume(compare.root_mean_square(truth) > 1e-30)
    assert verdict(torch.zeros_like(truth), truth, tolerance) is Verdict.WRONG_VALUES


@given(
    values=st.lists(st.integers(1, 10**6), min_size=2, max_size=40, unique=True),
    places=st.tuples(st.integers(0, 39), st.integers(0, 39)),
    dtype=st.sampled_from([torch.float32, torch.int64]),
)
def test_two_elements_that_changed_places_are_found(
    values: list[int], places: tuple[int, int], dtype: torch.dtype
) -> None:
    first, second = (place % len(values) for place in places)
    assume(first != second)
    truth = torch.tensor(values, dtype=dtype)
    output = truth.clone()
    output[first], output[second] = truth[second], truth[first]
    finding = compare.check_outputs([output], [truth], {dtype_name(dtype): EXACT})
    assert finding is not None
    assert (finding.verdict, finding.element) == (Verdict.WRONG_VALUES, (0, min(first, second)))


@given(
    values=st.lists(st.integers(1 << 61, (1 << 63) - 1), min_size=1, max_size=40),  # no float64 holds all their bits
    place=st.integers(0, 39),
    bit=st.integers(0, 63),
)
def test_an_exact_dtype_is_compared_to_its_last_bit(values: list[int], place: int, bit: int) -> None:
    truth = torch.tensor(values, dtype=torch.int64)
    output = truth.clone()
    assert verdict(output, truth) is None
    output[place % len(values)] ^= torch.tensor(1, dtype=torch.int64) << bit
    assert verdict(output, truth) is not None
    assert fingerprint(output) != fingerprint(truth)


CASES_OF_BITS = [(-0.0, 0.0), (math.nan, -math.nan), (2.0**-149, 0.0), (1.0, 1.0 + 2**-23)]


@pytest.mark.parametrize(("value", "truth"), CASES_OF_BITS)
def test_what_is_only_moved_is_compared_as_bits(value: float, truth: float) -> None:
    output, moved = torch.tensor([1.0, value]), torch.tensor([1.0, truth])
    assert compare.mismatches(output, moved, EXACT).tolist() == [False, True]
    assert not compare.mismatches(moved.clone(), moved, EXACT).any()


@pytest.mark.parametrize(("value", "truth"), CASES_OF_BITS[:2])
def test_what_is_computed_exactly_is_compared_as_values(value: float, truth: float) -> None:
    assert not compare.mismatches(torch.tensor([value]), torch.tensor([truth]).double(), EXACT).any()


def test_two_nans_are_told_apart_by_their_bits() -> None:
    truth = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    finding = compare.check_outputs([torch.tensor([math.nan])], [truth], {"float32": EXACT})
    assert finding is not None
    assert "out[0] = nan (0x7fc00000), expected nan (0x7fc00001)" in finding.cause


def test_a_nan_comes_with_the_size_of_the_inputs_of_its_row() -> None:
    exercise = registry.load(registry.find("softmax"))
    x = torch.zeros(2, 4)
    x[1] = torch.tensor([-3e4, 0.0, 1e4, 2e4])
    right = exercise.reference(x).float()
    overflown = torch.stack([right[0], torch.full((4,), math.nan)])
    finding = compare.check_observation(exercise, Observation([x], [overflown]))
    assert finding is not None
    assert finding.cause.endswith(
        "; the inputs of row 1 lie between -3e+04 and 2e+04: a value on the way overflows, or 0 is divided by 0"
    )
    finding = compare.check_observation(exercise, Observation([x], [right + 1]))
    assert finding is not None
    assert "lie between" not in finding.cause


def swizzled(truth: torch.Tensor, bits: int, columns: int) -> torch.Tensor:
    """Return the tensor that an unswizzled reader gets from a writer with a swizzle of `bits` bits."""
    piece = 16 // truth.element_size()
    output = torch.empty_like(truth)
    for row in range(truth.shape[0]):
        mask = row * 2**bits // 8 % 2**bits
        for number in range(truth.shape[1] // piece):
            output[row].view(-1, piece)[number] = truth[row].view(-1, piece)[number ^ mask]
    return output[:, :columns].contiguous()


@pytest.mark.parametrize("bits", [1, 2, 3])
@pytest.mark.parametrize(("dtype", "rows", "columns"), [(torch.float16, 72, 264), (torch.float32, 20, 96)])
def test_swizzle_of_the_writer_alone_is_named(bits: int, dtype: torch.dtype, rows: int, columns: int) -> None:
    truth = torch.randn(rows, -(-columns // 64) * 64, dtype=torch.float64).to(dtype)
    output = swizzled(truth, bits, columns)
    finding = compare.check_outputs([output], [truth[:, :columns].double()], {dtype_name(dtype): Tolerance(1e-2, 1e-2)})
    assert finding is not None
    assert "the writer and the reader of shared memory use different swizzles" in finding.cause


@pytest.mark.parametrize("fault", ["one mask", "one mask for half of the rows", "noise", "one row", "all zero"])
def test_other_faults_are_not_called_a_swizzle(fault: str) -> None:
    truth = torch.randn(64, 64)
    exchanged = truth.view(64, 16, 4)[:, torch.arange(16) ^ 3].reshape(64, 64)
    output = {
        "one mask": exchanged,
        "one mask for half of the rows": torch.where(torch.arange(64)[:, None] < 32, truth, exchanged),
        "noise": torch.randn(64, 64),
        "one row": torch.where(torch.arange(64)[:, None] == 5, truth.roll(4, 1), truth),
        "all zero": torch.zeros(64, 64),
    }[fault]
    finding = compare.check_outputs([output], [truth.double()], {"float32": Tolerance(1e-5, 1e-5)})
    assert finding is not None
    assert "swizzle" not in finding.cause


def test_rows_of_zeros_in_a_narrow_matrix_are_not_called_a_swizzle() -> None:
    """A mask that leads to no column explains nothing."""
    truth = torch.randn(16, 23)
    output = truth.clone()
    output[5:8] = 0
    finding = compare.check_outputs([output], [truth.double()], {"float32": Tolerance(1e-5, 1e-5)})
    assert finding is not None
    assert "swizzle" not in finding.cause
