"""Test the order of warps and blocks: forward, reversed, or in steps of a prime."""

from __future__ import annotations

import numpy as np
import pytest

from warpcheck import simt
from warpcheck.frontends.nvrtc import compile_kernel

SOURCE = """
extern "C" __global__ void ticket(int *counter, int *out) {
    int warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) out[warp] = atomicAdd(counter, 1);
}
"""


@pytest.mark.parametrize(
    ("reverse", "expected"), [(False, [0, 1, 2, 3, 4, 5]), (True, [5, 4, 3, 2, 1, 0]), (1_000_003, [4, 5, 0, 1, 2, 3])]
)
def test_blocks_and_warps_run_in_the_selected_order(reverse: int, expected: list[int]) -> None:
    counter = np.zeros(1, np.int32)
    out = np.full(6, -1, np.int32)
    arrays = {"counter": counter, "out": out}
    binary = compile_kernel(SOURCE, "ticket.cu", "ticket", "compute_80")
    launch = simt.load(binary.ptx).launch(
        "ticket",
        grid=(3,),
        block=(64,),
        args=[array.ctypes.data for array in arrays.values()],
        buffers=[simt.Buffer(name, array.ctypes.data, array.nbytes, 4) for name, array in arrays.items()],
        reverse=reverse,
    )
    assert out.tolist() == expected
    author = launch.writer(out.ctypes.data)
    assert author is not None
    assert (author.thread, author.block) == ("0", "0")


STARTED = """
extern "C" __global__ void started(int *counter, int *out) {
    if (threadIdx.x == 0) atomicAdd(counter, 1);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = atomicAdd(counter, 0);
}
extern "C" __global__ void local(int *counter, int *out) {
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = atomicAdd(counter, 1) + 1;
}
"""


@pytest.mark.parametrize(
    ("kernel", "order", "smallest_count"),
    [("started", 0, 1), ("started", 1, 1), ("started", 1_000_003, 64), ("local", 1_000_003, 1)],
)
def test_blocks_that_use_atomics_interleave_at_barriers_in_the_strided_order(
    kernel: str, order: int, smallest_count: int
) -> None:
    """In the strided order, the first block of `started` past the barrier already sees that others have started.

    In `local`, blocks can't communicate before the barrier, so the machine has no reason to interleave them.
    """
    counter = np.zeros(1, np.int32)
    out = np.full(100, -1, np.int32)
    arrays = {"counter": counter, "out": out}
    binary = compile_kernel(STARTED, "started.cu", kernel, "compute_80")
    simt.load(binary.ptx).launch(
        kernel,
        grid=(100,),
        block=(64,),
        args=[array.ctypes.data for array in arrays.values()],
        buffers=[simt.Buffer(name, array.ctypes.data, array.nbytes, 4) for name, array in arrays.items()],
        reverse=order,
    )
    assert (out.min(), out.max()) == (smallest_count, 100)
