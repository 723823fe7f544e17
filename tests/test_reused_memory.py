"""What a submission keeps from call to call: inputs come back at addresses that it has seen, and outputs must not."""

from __future__ import annotations

import pytest
import torch

from kernelpath.device import aligned
from kernelpath.work.call import ReturnedOutputs
from kernelpath.work.exception_findings import WrongType


def test_freed_memory_is_used_again() -> None:
    pool = aligned.Pool()
    first = pool.storage(1000)
    address = first.data_ptr()
    assert address % aligned.ALIGNMENT == 0
    del first
    assert pool.storage(1000).data_ptr() == address
    assert pool.storage(1001).data_ptr() != address


def test_memory_that_a_submission_keeps_is_left_alone() -> None:
    pool = aligned.Pool()
    kept = pool.storage(1000).view(250, 4)[:3]  # a view keeps the storage
    kept.fill_(7)
    pool.storage(1000).fill_(1)
    assert kept.tolist() == [[7] * 4] * 3


def test_large_memory_is_given_back() -> None:
    pool = aligned.Pool()
    pool.storage(aligned.POOLED_BYTES + 1)
    pool.storage(0)
    assert not any(pool._blocks.values())


def test_an_empty_input_can_have_any_dtype() -> None:
    assert aligned.Pool().storage(0).view(torch.float32).shape == (0,)


def test_an_output_is_returned_once() -> None:
    returned = ReturnedOutputs()
    both = torch.zeros(2, 3)
    returned.add([both[0], both[1], torch.empty(0)])  # two outputs of one call may share a storage
    returned.add([torch.zeros(3), torch.empty(0)])
    with pytest.raises(WrongType, match="an earlier call returned"):
        returned.add([both[1]])


def test_an_output_at_the_address_of_a_freed_one_is_new() -> None:
    pool, returned = aligned.Pool(), ReturnedOutputs()
    first = pool.storage(64)
    returned.add([first])
    address = first.data_ptr()
    del first
    second = pool.storage(64)
    assert second.data_ptr() == address
    returned.add([second])
