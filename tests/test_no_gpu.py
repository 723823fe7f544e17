"""Test torch.cuda in a worker of the PTX machine."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelpath.work import no_gpu
from warpcheck import simulated_gpu


def waits() -> None:
    torch.cuda.synchronize()
    stream = torch.cuda.Stream(device=0, priority=-1)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream), torch.cuda.device(torch.device("cpu")), stream:
        start.record(stream)
        end.record()
        stream.wait_event(start)
    torch.cuda.current_stream().wait_stream(stream)
    end.synchronize()
    assert 0 <= start.elapsed_time(end) < math.inf
    assert end.query()
    assert torch.cuda.current_stream().cuda_stream == 0


def asks() -> None:
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_capability(torch.device("cpu")) == (8, 0)
    properties: Any = torch.cuda.get_device_properties("cuda")
    assert (properties.multi_processor_count, properties.shared_memory_per_block_optin) == (108, 163 * 1024)
    assert not torch.cuda.is_available()


@pytest.mark.parametrize("body", [waits, asks])
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_torch_cuda_can_be_called_without_a_gpu(body: Callable[[], None]) -> None:
    def run() -> None:
        simulated_gpu.show({})
        no_gpu.patch_torch_cuda()
        body()

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(60)
    assert process.exitcode == 0
