"""Test the statistics that grade stochastic rounding: correct roundings pass, and each kind of error is reported."""

from collections.abc import Callable

import pytest
import torch

from kernelpath.course.problem import Case
from kernelpath.course.problems import stochastic_rounding as problem

LARGE_STEPS = problem.case(16_384)
SMALL_STEPS = problem.case(131_072, step=1000, lr=4e-6)


def check_rounding(case: Case, numbers: Callable[[torch.Size], torch.Tensor], seed: int = 0) -> str | None:
    """Check parameters that are rounded up if a number in [0, 1) is below the distance from the lower neighbor."""
    torch.manual_seed(seed)
    inputs = problem.PROBLEM.inputs(torch.Generator().manual_seed(seed), **case)
    exact = problem.reference(*inputs)[0]
    lower = problem.floor_to_bfloat16(exact)
    unit = problem.spacing(exact)
    rounded = lower + unit * (numbers(exact.shape) < (exact - lower) / unit)
    return problem.judged_rounding(inputs, [rounded.bfloat16()])


def uniform(shape: torch.Size) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64)


@pytest.mark.parametrize("case", [LARGE_STEPS, SMALL_STEPS], ids=["large steps", "small steps"])
def test_independent_uniform_numbers_pass(case: Case) -> None:
    assert [check_rounding(case, uniform, seed) for seed in range(3)] == [None] * 3


@pytest.mark.parametrize(
    ("case", "numbers", "fault"),
    [
        (LARGE_STEPS, lambda shape: torch.full(shape, 0.5, dtype=torch.float64), "biased"),
        (LARGE_STEPS, lambda shape: (uniform(shape) + uniform(shape)) / 2, "biased"),
        (SMALL_STEPS, lambda shape: (256 * uniform(shape)).floor() / 256, "biased"),
        (LARGE_STEPS, lambda shape: uniform(shape)[:1].expand(shape), "the two replicas"),
        (LARGE_STEPS, lambda shape: uniform(shape)[:, :512].repeat(1, shape[1] // 512), "512 apart"),
        (LARGE_STEPS, lambda shape: uniform(shape)[:, ::2].repeat_interleave(2, 1), "1 apart"),
    ],
    ids=["nearest", "not uniform", "eight bits", "one stream", "one block", "pairs"],
)
def test_a_wrong_distribution_is_reported(
    case: Case, numbers: Callable[[torch.Size], torch.Tensor], fault: str
) -> None:
    assert fault in (check_rounding(case, numbers) or "")


def test_a_value_beyond_the_neighbors_is_reported() -> None:
    inputs = problem.PROBLEM.inputs(torch.Generator().manual_seed(0), **problem.case(64))
    exact = problem.reference(*inputs)[0]
    outputs = exact.bfloat16()
    row, column = (int(index) for index in (exact.abs() > 1).nonzero()[0])
    lower, upper = problem.neighbors(exact[row, column])
    beyond = upper + (upper - lower) if upper - exact[row, column] < (upper - lower) / 4 else lower - (upper - lower)
    outputs[row, column] = float(beyond)
    text = problem.judged_rounding(inputs, [outputs])
    assert text is None or "is neither of the neighbors" in text
    assert float(problem.settled([exact], [outputs])[0][row, column]) == float(exact[row, column])
