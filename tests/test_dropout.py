"""Test the statistical checks of dropout masks: shifts, periods, wrong shares, and different masks of both passes."""

from __future__ import annotations

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.problems import dropout
from kernelpath.grading import compare
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import Verdict

N = 16_384
P = 0.25


def random_mask(seed: int, n: int = N, p: float = P) -> torch.Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(seed)) >= p


def judge_masks(first: torch.Tensor, second: torch.Tensor, p: float = P) -> str | None:
    return dropout.judged_masks(p, [first, second, first, second])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.98])
def test_random_masks_pass(p: float) -> None:
    assert all(judge_masks(random_mask(2 * k, p=p), random_mask(2 * k + 1, p=p), p) is None for k in range(10))


def test_a_shift_between_two_masks_is_found_with_its_distance() -> None:
    long = random_mask(0, N + 700)
    assert "at a distance of 700 elements" in str(judge_masks(long[:N], long[700:]))
    assert "at a distance of 700 elements" in str(judge_masks(long[700:], long[:N]))


def test_a_period_is_found_with_its_length() -> None:
    # A generator that uses only the low 10 bits of an element's index repeats its mask after 1024 elements.
    block = random_mask(0, 1024)
    assert "repeats itself after 1024 elements" in str(judge_masks(block.repeat(16), random_mask(1)))


def test_a_wrong_share_from_a_short_period_says_so() -> None:
    block = random_mask(0, 64, 0.4)
    finding = str(judge_masks(block.repeat(256), random_mask(1)))
    assert "a share of" in finding
    assert finding.endswith("it repeats itself after 64 elements, so few numbers are drawn")
    assert "repeats" not in str(judge_masks(random_mask(0, p=0.4), random_mask(1)))


def test_a_share_may_deviate_by_six_standard_deviations() -> None:
    mask = random_mask(0)
    spare = random_mask(1)
    skewed = mask.clone()
    skewed[:1600] = True  # 400 of them were dropped: 7 deviations of 55
    assert judge_masks(mask, spare) is None
    assert "with p = 0.25" in str(judge_masks(skewed, spare))


def test_nothing_is_dropped_for_p_of_zero() -> None:
    all_kept = torch.ones(N, dtype=torch.bool)
    one_dropped = all_kept.clone()
    one_dropped[5] = False
    assert judge_masks(all_kept, all_kept, 0.0) is None
    assert "16,383 of 16,384" in str(judge_masks(one_dropped, all_kept, 0.0))


def call(second_pass: torch.Tensor) -> Observation:
    """Return the observation of two layers with different masks; the second layer's backward pass uses this mask."""
    inputs = dropout.inputs(torch.Generator().manual_seed(0), N, P, "float32", "offset")
    first = random_mask(1)
    second = random_mask(2)
    outputs = [
        (output * mask).float()
        for output, mask in zip(dropout.reference(*inputs), (first, second, first, second_pass), strict=True)
    ]
    return Observation(inputs, outputs)


def test_any_mask_passes_if_both_passes_use_it() -> None:
    exercise = registry.load(registry.find("dropout"))
    assert compare.check_observation(exercise, call(random_mask(2))) is None
    finding = compare.check_observation(exercise, call(random_mask(3)))
    assert finding is not None
    assert finding.verdict is Verdict.WRONG_VALUES
    assert finding.cause.startswith("the second layer does not have one mask")


def test_sampled_outputs_determine_the_mask_of_the_reference() -> None:
    exercise = registry.load(registry.find("dropout"))
    inputs = dropout.inputs(torch.Generator().manual_seed(0), N, P, "float32", "offset")
    places = torch.tensor([3, 5, 8, 13, 21, 34])
    truth = [output[places] for output in dropout.reference(*inputs)]
    sampled = [output[places] for output in call(random_mask(2)).outputs]
    settled = compare.resolve_choices(exercise, truth, sampled)
    assert all(torch.allclose(expected.float(), sample) for expected, sample in zip(settled, sampled, strict=True))
    sampled[1] *= 1 - P
    assert not torch.allclose(settled[1].float(), sampled[1])
