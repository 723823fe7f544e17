"""Who did the work, as it is judged from what was seen of two calls, and of a call on a GPU."""

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


def call(*host: tuple[str, str], scalar: str = "7", fills: Sequence[tuple[str, str]] = ()) -> Observation:
    note = LaunchEntry("add", "0f", (1, 1, 1), (32, 1, 1), 0, ["storage 0 (4 bytes) + 0", scalar], host, fills=fills)
    return Observation(inputs=(), outputs=(), transcript=[note])


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
def test_bytes_of_the_host_are_alike_where_they_or_the_storages_are(
    first: Sequence[tuple[str, str]], second: Sequence[tuple[str, str]]
) -> None:
    assert compare_launches(call(*first), call(*second), "add") is None


def test_zeros_over_zeros_are_like_zeros_over_results() -> None:
    reset = call(("out", "bytes zeros"), ("x", "a b"))
    assert compare_launches(reset, call(("x", "a b"), fills=[("out", "zeros")]), "add") is None
    assert compare_launches(call(("x", "a b"), fills=[("out", "zeros")]), reset, "add") is None
    assert compare_launches(call(fills=[("out", "zeros")]), call(fills=[("out", "ones")]), "add") is None
    for other in (call(("x", "a b"), fills=[("out", "ones")]), call(("x", "a b")), call(fills=[("out", "zeros")])):
        assert compare_launches(reset, other, "add") is not None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([("out", "a b")], [("out", "c d")]),
        ([("out", "a b")], []),
        ([("x", "a b"), ("y", "c d")], [("x", "a b")]),
        ([("x", "a b"), ("x", "c d")], [("x", "e f"), ("x", "c d")]),
    ],
)
def test_other_bytes_of_the_host_name_their_buffer(
    first: Sequence[tuple[str, str]], second: Sequence[tuple[str, str]]
) -> None:
    finding = compare_launches(call(*first), call(*second), "add")
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


def test_another_scalar_is_a_difference_whatever_the_buffers_say() -> None:
    finding = compare_launches(call(("out", "a b")), call(("out", "a b"), scalar="8"), "add")
    assert finding is not None
    assert finding.cause.startswith("argument 1 of add is 7 for some values and 8 for others")


def test_a_struct_of_many_bytes_is_not_quoted() -> None:
    content = "00" * 500
    finding = compare_launches(call(scalar=content), call(scalar=f"{content[:20]}11{content[22:]}"), "add")
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
def test_memory_that_is_made_ready_is_no_librarys_work(kernels: dict[str, float], accepted: bool) -> None:
    finding = check_library_share(kernels, ["add_kernel"])
    assert (finding is None) == accepted
    if finding is not None:
        assert finding.verdict is Verdict.NOT_YOUR_KERNEL


def test_an_evidence_without_a_launch_is_alike_only_with_its_like() -> None:
    none = Observation(inputs=(), outputs=[torch.zeros(1)])
    assert compare_launches(none, none, "add") is None
    finding = compare_launches(none, call(), "add")
    assert finding is not None
    assert finding.cause.startswith("0 kernels were launched for some values and 1 for others")


@pytest.mark.parametrize(
    ("name", "tensor", "launches", "verdict"),
    [
        ("tensor_cores", 0, 1, Verdict.NO_TENSOR_CORES),
        ("tensor_cores", 1 << 17, 1, None),
        ("tensor_cores", (1 << 17) - 1, 1, Verdict.NO_TENSOR_CORES),
        ("tensor_cores", 0, 0, None),  # on a GPU, whose kernels the machine counts beside it
        ("matmul_tiled", 0, 1, None),
        ("paged_decode", 0, 1, None),
    ],
)
def test_tensor_cores_work_where_the_statement_asks_for_them(
    name: str, tensor: int, launches: int, verdict: Verdict | None
) -> None:
    exercise = registry.load(registry.find(name))
    finding = check_tensor_cores(
        exercise,
        Observation((), (), transcript=call().transcript[:launches], tensor_core_operations=tensor, flops=1 << 19),
    )
    assert (finding.verdict if finding else None) is verdict


@pytest.mark.parametrize(
    ("by_tensor_cores", "told"), [(1.0, None), (0.25, None), (0.24, "24% of what"), (0.0, "0% of")]
)
def test_a_quarter_of_the_output_has_to_change_its_sign_with_the_mma(by_tensor_cores: float, told: str | None) -> None:
    right = torch.tensor([3.0, -5.0, 4.0, -4.0])
    negated = Observation(inputs=(), outputs=[right * (1 - 2 * by_tensor_cores)])
    finding = check_tensor_core_output(registry.load(registry.find("tensor_cores")), negated, [right])
    assert (finding is None) == (told is None)
    if finding is not None:
        assert finding.verdict is Verdict.NO_TENSOR_CORES
        assert finding.cause.startswith(str(told))


def test_a_call_that_launches_nothing_is_told_by_its_operators_if_it_has_any() -> None:
    """No planted submission needs this: where nothing is launched, other checks object as well, in other words."""
    multiplication = OperatorCall("mm", 7)
    assert check_launches([multiplication], [call().transcript[0]], "add") is None
    without_launch = check_launches([], [], "add")
    assert without_launch is not None
    assert (without_launch.verdict, without_launch.cause) == (Verdict.NOT_YOUR_KERNEL, "add launched no kernel")
    by_operator = check_launches([multiplication], [], "add")
    assert by_operator is not None
    assert (by_operator.line, by_operator.cause) == (7, "add calls torch.mm; your kernel has to do the work")
