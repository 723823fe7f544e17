"""Test the checks of provenance, which compare the observations of two calls and inspect the kernels of a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kernelpath.course import registry
from kernelpath.device.messages import LaunchEntry
from kernelpath.grading.provenance import (
    Observation,
    check_launches,
    check_library_share,
    check_tensor_core_output,
    check_tensor_cores,
    compare_launches,
    operators_finding,
)
from kernelpath.verdict import Verdict
from kernelpath.work.messages import OperatorCall


def create_observation(*host: tuple[str, str], scalar: str = "7", fills: Sequence[tuple[str, str]] = ()) -> Observation:
    entry = LaunchEntry("add", "0f", (1, 1, 1), (32, 1, 1), 0, ["storage 0 (4 bytes) + 0", scalar], host, fills=fills)
    return Observation(inputs=(), outputs=(), transcript=[entry])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([], []),
        ([("out", "bytes whole")], [("out", "bytes whole")]),
        ([("out", "a whole")], [("out", "b whole")]),
        ([("out", "bytes a")], [("out", "bytes b")]),
        ([("out", "whole")], [("out", "a whole")]),
    ],
)
def test_host_bytes_match_if_their_content_or_the_storage_does(
    first: Sequence[tuple[str, str]], second: Sequence[tuple[str, str]]
) -> None:
    assert compare_launches(create_observation(*first), create_observation(*second), "add") is None


def test_a_reset_to_zero_matches_whatever_was_there_before() -> None:
    reset = create_observation(("out", "bytes zeros"), ("x", "a b"))
    assert compare_launches(reset, create_observation(("x", "a b"), fills=[("out", "zeros")]), "add") is None
    assert compare_launches(create_observation(("x", "a b"), fills=[("out", "zeros")]), reset, "add") is None
    assert (
        compare_launches(
            create_observation(fills=[("out", "zeros")]), create_observation(fills=[("out", "ones")]), "add"
        )
        is None
    )
    for changed in (
        create_observation(("x", "a b"), fills=[("out", "ones")]),
        create_observation(("x", "a b")),
        create_observation(fills=[("out", "zeros")]),
    ):
        assert compare_launches(reset, changed, "add") is not None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([("out", "a b")], [("out", "c d")]),
        ([("out", "a b")], []),
        ([("x", "a b"), ("y", "c d")], [("x", "a b")]),
        ([("x", "a b"), ("x", "c d")], [("x", "e f"), ("x", "c d")]),
    ],
)
def test_different_host_bytes_are_reported_with_their_buffer(
    first: Sequence[tuple[str, str]], second: Sequence[tuple[str, str]]
) -> None:
    finding = compare_launches(create_observation(*first), create_observation(*second), "add")
    assert finding is not None
    assert finding.verdict is Verdict.NOT_YOUR_KERNEL
    assert finding.cause.startswith(f"add reads bytes in {first[-1][0]} that the host wrote")


@pytest.mark.parametrize(
    ("name", "written"), [("clone", "clone() or contiguous()"), ("_to_copy", "to()"), ("sum", "torch.sum")]
)
def test_an_operator_is_named_as_a_submission_writes_it(name: str, written: str) -> None:
    finding = operators_finding([OperatorCall(name, 7), OperatorCall(name, 9)], "add")
    assert finding is not None
    assert finding.cause == f"add calls {written}; your kernel has to do the work"
    assert finding.line == 7


def test_a_different_scalar_is_reported() -> None:
    finding = compare_launches(
        create_observation(("out", "a b")), create_observation(("out", "a b"), scalar="8"), "add"
    )
    assert finding is not None
    assert finding.cause.startswith("argument 1 of add is 7 for some values and 8 for others")


def test_a_large_struct_is_reported_by_its_first_different_byte() -> None:
    content = "00" * 500
    finding = compare_launches(
        create_observation(scalar=content), create_observation(scalar=f"{content[:20]}11{content[22:]}"), "add"
    )
    assert finding is not None
    assert finding.cause.startswith("argument 1 of add has other bytes for other values, from byte 10 on")


ADD = "add_kernel_0d1d2d"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >"


@pytest.mark.parametrize(
    ("kernels", "accepted"),
    [
        ({ADD: 1.0}, True),
        ({ADD: 1.0, FILL: 0.8}, True),
        ({ADD: 1.0, "Memset (Device)": 0.5}, True),
        ({ADD: 1.0, SUM: 0.11}, True),
        ({ADD: 1.0, SUM: 0.12}, False),
        ({FILL: 1.0, SUM: 0.2}, False),
        ({ADD: 1.0, "Memcpy DtoD (Device -> Device)": 0.5}, False),
    ],
)
def test_fills_and_short_reductions_do_not_count_as_library_work(kernels: dict[str, float], accepted: bool) -> None:
    finding = check_library_share(kernels, ["add_kernel"])
    assert (finding is None) == accepted
    if finding is not None:
        assert finding.verdict is Verdict.NOT_YOUR_KERNEL


def test_observations_without_launches_match_only_each_other() -> None:
    without_launches = Observation(inputs=(), outputs=[torch.zeros(1)])
    assert compare_launches(without_launches, without_launches, "add") is None
    finding = compare_launches(without_launches, create_observation(), "add")
    assert finding is not None
    assert finding.cause.startswith("0 kernels were launched for some values and 1 for others")


@pytest.mark.parametrize(
    ("name", "tensor", "launches", "verdict"),
    [
        ("tensor_cores", 0, 1, Verdict.NO_TENSOR_CORES),
        ("tensor_cores", 1 << 17, 1, None),
        ("tensor_cores", (1 << 17) - 1, 1, Verdict.NO_TENSOR_CORES),
        ("tensor_cores", 0, 0, None),  # a launch on a GPU, whose operations the shadow run counts
        ("matmul_tiled", 0, 1, None),
        ("paged_decode", 0, 1, None),
    ],
)
def test_tensor_cores_are_required_only_by_exercises_that_state_it(
    name: str, tensor: int, launches: int, verdict: Verdict | None
) -> None:
    exercise = registry.load(registry.find(name))
    finding = check_tensor_cores(
        exercise,
        Observation(
            (), (), transcript=create_observation().transcript[:launches], tensor_core_operations=tensor, flops=1 << 19
        ),
    )
    assert (finding.verdict if finding else None) is verdict


@pytest.mark.parametrize(
    ("by_tensor_cores", "message"), [(1.0, None), (0.25, None), (0.24, "24% of what"), (0.0, "0% of")]
)
def test_at_least_a_quarter_of_the_output_must_come_from_tensor_cores(
    by_tensor_cores: float, message: str | None
) -> None:
    right = torch.tensor([3.0, -5.0, 4.0, -4.0])
    negated = Observation(inputs=(), outputs=[right * (1 - 2 * by_tensor_cores)])
    finding = check_tensor_core_output(registry.load(registry.find("tensor_cores")), negated, [right])
    assert (finding is None) == (message is None)
    if finding is not None:
        assert finding.verdict is Verdict.NO_TENSOR_CORES
        assert finding.cause.startswith(str(message))


def test_a_call_without_launches_is_reported_by_its_operators() -> None:
    """No planted submission covers this, because other checks also reject a call without launches."""
    multiplication = OperatorCall("mm", 7)
    assert check_launches([multiplication], [create_observation().transcript[0]], "add") is None
    without_launch = check_launches([], [], "add")
    assert without_launch is not None
    assert (without_launch.verdict, without_launch.cause) == (Verdict.NOT_YOUR_KERNEL, "add launched no kernel")
    by_operator = check_launches([multiplication], [], "add")
    assert by_operator is not None
    assert (by_operator.line, by_operator.cause) == (7, "add calls torch.mm; your kernel has to do the work")
