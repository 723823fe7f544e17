"""Test memory reuse between calls: inputs reuse addresses of earlier calls, but outputs must be new tensors."""

from __future__ import annotations

import pytest
import torch

from kernelpath.device import aligned
from kernelpath.work.call import ReturnedOutputs
from kernelpath.work.exception_findings import WrongType


def test_freed_memory_is_reused() -> None:
    pool = aligned.Pool()
    first = pool.storage(1000)
    address = first.data_ptr()
    assert address % aligned.ALIGNMENT == 0
    del first
    assert pool.storage(1000).data_ptr() == address
    assert pool.storage(1001).data_ptr() != address


def test_memory_that_a_view_keeps_alive_is_not_reused() -> None:
    pool = aligned.Pool()
    view = pool.storage(1000).view(250, 4)[:3]  # a view keeps the storage alive
    view.fill_(7)
    pool.storage(1000).fill_(1)
    assert view.tolist() == [[7] * 4] * 3


def test_large_blocks_are_not_pooled() -> None:
    pool = aligned.Pool()
    pool.storage(aligned.POOLED_BYTES + 1)
    pool.storage(0)
    assert not any(pool._blocks.values())


def test_an_empty_input_can_have_any_dtype() -> None:
    assert aligned.Pool().storage(0).view(torch.float32).shape == (0,)


def test_returning_an_earlier_output_again_is_refused() -> None:
    returned = ReturnedOutputs()
    outputs = torch.zeros(2, 3)
    returned.add([outputs[0], outputs[1], torch.empty(0)])  # two outputs of one call may share a storage
    returned.add([torch.zeros(3), torch.empty(0)])
    with pytest.raises(WrongType, match="an earlier call returned"):
        returned.add([outputs[1]])


def test_an_output_at_the_address_of_a_freed_one_is_new() -> None:
    pool = aligned.Pool()
    returned = ReturnedOutputs()
    first = pool.storage(64)
    returned.add([first])
    address = first.data_ptr()
    del first
    second = pool.storage(64)
    assert second.data_ptr() == address
    returned.add([second])
