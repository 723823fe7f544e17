"""Test the tolerances of the declarations: full precision passes, and the next lower precision fails."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelpath.course import draw, registry
from kernelpath.course.problem import Case
from kernelpath.grading import compare, grade
from kernelpath.grading.ground_truth import expected_outputs
from tests import planted

Round = Callable[[torch.Tensor], torch.Tensor]


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Round float32 to a mantissa of 10 bits, to nearest even."""
    bits = x.contiguous().view(torch.int32)
    # TF32 keeps 10 of 23 mantissa bits. Adding just under half of the last kept bit, and that bit, rounds to even.
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def float32(x: torch.Tensor) -> torch.Tensor:
    return x


def vector_add(rounded: Round, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return rounded(rounded(x) + rounded(y))


def transpose(rounded: Round, x: torch.Tensor) -> torch.Tensor:
    return rounded(x.float()).to(x.dtype).t().contiguous()


def softmax(rounded: Round, x: torch.Tensor) -> torch.Tensor:
    shifted = rounded(x.float() - x.float().amax(1, keepdim=True))
    e = rounded(shifted.exp())
    return rounded(e / rounded(e.sum(1, keepdim=True))).to(x.dtype)


def softmax_by_exp2(rounded: Round, x: torch.Tensor) -> torch.Tensor:
    scaled = x.float() * 1.4426950408889634
    e = torch.exp2(scaled - scaled.amax(1, keepdim=True))
    return (e * (1 / e.sum(1, keepdim=True))).to(x.dtype)


def passes(name: str, kernel: Callable[..., torch.Tensor], rounded: Round, case: Case, seed: int = 0) -> bool:
    exercise = registry.load(registry.find(name))
    tensors = exercise.inputs(torch.Generator().manual_seed(seed), **case)
    return (
        compare.check_outputs([kernel(rounded, *tensors)], expected_outputs(exercise, tensors), exercise.tolerance)
        is None
    )


@pytest.mark.parametrize(
    ("name", "kernel"),
    [("vector_add", vector_add), ("transpose", transpose), ("softmax", softmax), ("softmax", softmax_by_exp2)],
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_float32_inside_passes_every_case(name: str, kernel: Callable[..., torch.Tensor], seed: int) -> None:
    cases = registry.load(registry.find(name)).cases
    assert [case for case in cases if not passes(name, kernel, float32, case, seed)] == []


@pytest.mark.parametrize(
    ("name", "kernel", "rounded", "case"),
    [
        ("vector_add", vector_add, tf32, {"n": 256, "offset": 0}),
        ("vector_add", vector_add, bfloat16, {"n": 256, "offset": 0}),
        ("transpose", transpose, tf32, {"rows": 31, "columns": 33, "dtype": "float32"}),
        ("transpose", transpose, bfloat16, {"rows": 31, "columns": 33, "dtype": "float32"}),
        ("softmax", softmax, tf32, {"rows": 33, "columns": 31, "dtype": "float32"}),
        ("softmax", softmax, bfloat16, {"rows": 33, "columns": 31, "dtype": "float32"}),
        ("softmax", softmax, bfloat16, {"rows": 5, "columns": 256, "dtype": "bfloat16"}),
    ],
)
def test_the_next_lower_precision_fails(
    name: str, kernel: Callable[..., torch.Tensor], rounded: Round, case: Case
) -> None:
    assert not passes(name, kernel, rounded, case)


def test_softmax_without_its_maximum_fails() -> None:
    def bare(rounded: Round, x: torch.Tensor) -> torch.Tensor:
        e = x.float().exp()
        return (e / e.sum(1, keepdim=True)).to(x.dtype)

    assert not passes("softmax", bare, float32, {"rows": 5, "columns": 256, "dtype": "bfloat16"})


@pytest.mark.parametrize(
    ("reject", "expected_cause"),
    [
        (
            "w02d_copies/WRONG_VALUES_buffers_lost_after_an_error",
            "a leak: 1 pinned buffer was not freed after call 2 (host_alloc in line ",
        ),
        ("w02d_copies/WRONG_VALUES_buffer_filled_too_early", "a pinned buffer was filled again in line "),
        ("w02d_copies/WRONG_VALUES_pageable", "took 2 times as long as with overlapped copies"),
        ("w02d_copies/WRONG_VALUES_everything_pinned", "more than 32,768 elements were pinned"),
        (
            "w03a_benchmark/WRONG_VALUES_no_synchronization",
            "that has none of these problems: far too short: the clock was read before",
        ),
        ("w03a_benchmark/WRONG_VALUES_one_clock_around_all", "differ by 20% either way: spread too small"),
        (
            "w03a_benchmark/WRONG_VALUES_no_warm_up",
            "first 150 calls take 3 times as long: too long: the slow first calls are included",
        ),
        (
            "w03a_benchmark/WRONG_VALUES_mean_and_deviation",
            "one call in 25 takes 10 times as long: too short: one long",
        ),
        ("w03d_occupancy/WRONG_VALUES_nothing_reserved", "on sm_80: 6 blocks, expected 5, limited by shared memory"),
    ],
)
def test_an_exercise_explains_wrong_values_itself(reject: str, expected_cause: str, tmp_path: Path) -> None:
    wrong = planted.named(registry.root(), reject)
    report = grade.grade(registry.find(wrong.exercise), wrong.submission(tmp_path), device="cpu", seed=1)
    assert expected_cause in report.cause


def test_normal_has_mean_one_and_the_requested_large_values() -> None:
    x = draw.normal(torch.Generator().manual_seed(0), 300, 400, large=40)
    assert 30 <= int((x.abs() > 10).sum()) <= 40
    assert abs(float(x[x.abs() < 10].mean()) - 1) < 0.02
    assert float(x[x.abs() < 10].std()) == pytest.approx(1, abs=0.02)


def test_the_places_of_large_values_depend_on_the_seed() -> None:
    first, second = (draw.normal(torch.Generator().manual_seed(seed), 10_000) for seed in (0, 1))
    assert not torch.equal(first.abs() > 10, second.abs() > 10)
