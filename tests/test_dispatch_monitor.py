"""Test the monitoring of a call in its process: guard bands around allocations, and recorded operators."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from kernelpath.device.messages import POISON
from kernelpath.grading import compare
from kernelpath.work import confine
from kernelpath.work.dispatch_monitor import GUARD, AuditLog, CallRecord, DispatchMonitor, GuardedAllocator
from kernelpath.work.tensors import poison_, storage_bytes

AUDIT_LOG = AuditLog()

GUARDED = {
    "empty": lambda x: torch.empty(3, 5),
    "empty_like": torch.empty_like,
    "empty_strided": lambda x: torch.empty_strided((3, 5), (1, 3)),
    "new_empty": lambda x: x.new_empty(7, dtype=torch.bfloat16),
    "odd": lambda x: torch.empty(7, dtype=torch.uint8),
}


@pytest.mark.parametrize("make", GUARDED.values(), ids=GUARDED)
def test_new_memory_is_poisoned_and_has_the_requested_layout(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(3, 5).t()
    plain = make(x)
    record = CallRecord()
    allocator = GuardedAllocator(poison=True)
    with AUDIT_LOG.recording(record), DispatchMonitor(allocator.allocate):
        guarded = make(x)
    assert (guarded.shape, guarded.stride(), guarded.dtype) == (plain.shape, plain.stride(), plain.dtype)
    assert guarded.data_ptr() % 64 == guarded.untyped_storage().data_ptr() % 64
    assert compare.is_poison(guarded).all() or guarded.element_size() == 1
    assert record.operators == []
    assert allocator.describe_broken_guard() == ""


def test_no_guard_is_checked_without_poison() -> None:
    allocator = GuardedAllocator(poison=False)
    with DispatchMonitor(allocator.allocate):
        out = torch.empty(10).zero_()
    torch.as_strided(out, (1,), (1,), out.storage_offset() + 10).fill_(1.0)
    assert allocator.describe_broken_guard() == ""


@pytest.mark.parametrize(
    ("place", "expected_error"),
    [(-1, "wrote before the start of a tensor of 40 bytes"), (10, "wrote past the end of a tensor of 40 bytes")],
)
def test_a_write_outside_an_allocation_is_found(place: int, expected_error: str) -> None:
    allocator = GuardedAllocator(poison=True)
    with DispatchMonitor(allocator.allocate):
        out = torch.empty(10)
        torch.empty(4)
    torch.as_strided(out, (1,), (1,), out.storage_offset() + place).fill_(1.0)
    assert allocator.describe_broken_guard() == expected_error


@pytest.mark.parametrize("poison", [True, False])
@pytest.mark.parametrize("bytes_past", [1, 2, GUARD])
def test_a_write_past_an_input_is_found(bytes_past: int, poison: bool) -> None:
    allocator = GuardedAllocator(poison)
    (copy,) = allocator.copy_inputs([torch.randn(10)])
    assert allocator.describe_broken_guard() == ""
    storage = torch.tensor([], dtype=torch.uint8).set_(copy.untyped_storage())
    storage[-GUARD + bytes_past - 1] ^= 1
    assert allocator.describe_broken_guard() == "wrote past the end of a tensor of 40 bytes"


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize(("byte", "expected_error"), [(GUARD - 1, "before the start"), (-GUARD, "past the end")])
def test_the_input_next_to_a_wrong_write_is_named(index: int, byte: int, expected_error: str) -> None:
    allocator = GuardedAllocator(poison=False)
    copies = allocator.copy_inputs([torch.randn(10 * (1 + size)) for size in range(5)])
    assert allocator.describe_broken_guard() == ""
    assert len({copy.untyped_storage().data_ptr() for copy in copies}) == 5
    storage_bytes(copies[index])[byte] ^= 1
    assert allocator.describe_broken_guard() == f"wrote {expected_error} of a tensor of {40 * (1 + index)} bytes"


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_guard_bands_of_an_input_start_at_its_first_and_last_byte(size: int) -> None:
    (copy,) = GuardedAllocator(poison=False).copy_inputs([torch.full((size,), 7, dtype=torch.uint8)])
    storage = storage_bytes(copy)
    poison = poison_(torch.empty_like(storage))
    assert torch.equal(storage[:GUARD], poison[:GUARD])
    assert torch.equal(storage[GUARD + size :], poison[GUARD + size :])
    assert copy.tolist() == [7] * size


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[2:, 1::2], lambda x: x[:0]])
def test_a_guarded_input_has_its_own_storage_and_the_same_layout(
    view: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    tensor = view(torch.randn(6, 8))
    allocator = GuardedAllocator(poison=True)
    (copy,) = allocator.copy_inputs([tensor])
    assert torch.equal(copy, tensor)
    assert (copy.stride(), copy.dtype) == (tensor.stride(), tensor.dtype)
    assert copy.storage_offset() * 4 == tensor.storage_offset() * 4 + GUARD
    assert allocator.is_input(copy)
    assert not allocator.is_input(tensor)


@pytest.mark.parametrize(
    ("call", "recorded_names"),
    [
        (lambda x: x + x, ["add"]),
        (lambda x: torch.softmax(x, 0), ["_softmax"]),
        (lambda x: x.clone().mul_(2), ["clone", "mul_"]),
        (lambda x: torch.add(x, x, out=torch.empty_like(x)), ["add"]),
        (lambda x: x.sum().item(), ["sum", "_local_scalar_dense"]),
        (lambda x: x.view(2, 2).t().reshape(4), ["_unsafe_view", "clone"]),
        (lambda x: torch.zeros_like(x).fill_(3.0).view(2, 2).t(), []),
        (lambda x: x.new_zeros(3)[1:].unsqueeze(0), []),
    ],
)
def test_computing_operators_are_recorded(call: Callable[[torch.Tensor], object], recorded_names: list[str]) -> None:
    record = CallRecord()
    x = torch.ones(4)
    with AUDIT_LOG.recording(record), DispatchMonitor(GuardedAllocator(poison=True).allocate):
        call(x)
    assert [operator.name for operator in record.operators] == [
        name for name in recorded_names if name != "_unsafe_view"
    ]


def test_a_recorded_operator_has_its_line() -> None:
    module = ModuleType(confine.SUBMISSION)
    exec("def helper(x):\n    return x.sum()\n\n\ndef entry(x):\n    return helper(x)\n", vars(module))
    record = CallRecord()
    x = torch.ones(4)
    with AUDIT_LOG.recording(record), DispatchMonitor(GuardedAllocator(poison=True).allocate):
        module.entry(x)
    assert [(operator.name, operator.line) for operator in record.operators] == [("sum", 2)]


def test_no_operator_is_recorded_outside_a_call() -> None:
    record = CallRecord()
    x = torch.ones(4)
    with DispatchMonitor(GuardedAllocator(poison=True).allocate):
        with AUDIT_LOG.recording(record):
            pass
        x.sum()
    assert record.operators == []


def test_operators_inside_a_custom_operator_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.library.custom_op("watched::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        poison_checks.append((out.numpy().view("int16")[::2] == POISON).all())
        return x * 2

    poison_checks: list[object] = []
    twice._init_fn.__module__ = confine.SUBMISSION
    record = CallRecord()
    allocator = GuardedAllocator(poison=True)
    with AUDIT_LOG.recording(record), DispatchMonitor(allocator.allocate):
        result = twice(torch.ones(3))
    assert result.tolist() == [2, 2, 2]
    assert poison_checks == [True], "memory must be poisoned inside a custom operator too"
    names = {operator.name for operator in record.operators}
    assert "mul" in names
    assert "twice" not in names
