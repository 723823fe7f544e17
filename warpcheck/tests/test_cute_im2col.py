"""Test a TMA load in im2col mode by the CuTe DSL, which encodes the tensor map and computes the coordinates itself."""

from __future__ import annotations

from typing import Any

import cutlass
import pytest
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack

import warpcheck

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PIXELS = 64
CHANNELS = 64
FILTER = 3


@cute.kernel
def unfold_kernel(tma_atom: Any, tma_tensor: Any, smem_layout: Any, out: Any) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    smem = cutlass.memory.SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float16, smem_layout.outer, byte_alignment=1024, swizzle=smem_layout.inner)
    mbar = smem.allocate_array(cutlass.Int64, 1)
    if tidx == 0:
        cute.arch.mbarrier_init(mbar, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    tiles = cute.local_tile(tma_tensor, (PIXELS, (CHANNELS, 1, 1)), (None, None))
    smem_part, gmem_part = cpasync.tma_partition(
        tma_atom, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(tiles, 0, 2)
    )
    for tap in cutlass.range_constexpr(FILTER * FILTER):  # type: ignore[attr-defined]
        if tidx == 0:
            cute.arch.mbarrier_arrive_and_expect_tx(mbar, PIXELS * CHANNELS * 2)
        cute.copy(tma_atom, gmem_part[None, bidx, (0, tap % FILTER, tap // FILTER)], smem_part, tma_bar_ptr=mbar)
        cute.arch.mbarrier_wait(mbar, tap % 2)
        for i in range(tidx, PIXELS * CHANNELS, 32):
            out[bidx * PIXELS + i // CHANNELS, tap, i % CHANNELS] = tile[i // CHANNELS, i % CHANNELS]
        cute.arch.sync_threads()


def unfold_with(stride: int, padding: int) -> Any:
    """Return a host function for one convolution, whose parameters are constants of the compiled code."""

    @cute.jit
    def unfold(x: Any, out: Any) -> None:
        images, height, width, channels = x.shape
        strides = (x.stride[2], x.stride[1], x.stride[0])
        layout = cute.make_layout(((width, height, images), channels), stride=(strides, x.stride[3]))
        swizzle = cute.make_swizzle(3, 4, 3)  # type: ignore[attr-defined]
        atom = cute.make_composed_layout(swizzle, 0, cute.make_layout((8, 64), stride=(64, 1)))
        smem_layout = cute.tile_to_shape(atom, (PIXELS, CHANNELS), (0, 1))
        upper = padding - (FILTER - 1)
        tma_atom, tma_tensor = cpasync.make_im2col_tma_atom(
            cpasync.CopyBulkTensorIm2ColG2SOp(),
            cute.make_tensor(x.iterator, layout),
            smem_layout,
            (PIXELS, CHANNELS),
            *((-padding, -padding), (upper, upper)),  # the corners of the bounding box
            *((padding, padding), (padding, padding)),
            *((stride, stride), (0, 0), (1, 1)),  # strides of the pixels; first place and dilation of the filter
        )
        blocks = out.shape[0] // PIXELS
        unfold_kernel(tma_atom, tma_tensor, smem_layout, out).launch(grid=[blocks, 1, 1], block=[32, 1, 1])

    return unfold


@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (1, 0), (2, 1)])
@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a"])
def test_the_loaded_columns_equal_those_of_torch_unfold(architecture: str, stride: int, padding: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 9, 14, CHANNELS).half()
    columns = torch.nn.functional.unfold(x.float().permute(0, 3, 1, 2), FILTER, padding=padding, stride=stride)
    expected = columns.reshape(2, CHANNELS, FILTER * FILTER, -1).permute(0, 3, 2, 1).reshape(-1, FILTER**2, CHANNELS)
    pixels = expected.shape[0]
    out = torch.zeros(-(-pixels // PIXELS) * PIXELS, FILTER * FILTER, CHANNELS).half()
    tensors: list[Any] = [from_dlpack(tensor) for tensor in (x, out)]
    with warpcheck.gpu(architecture) as gpu:
        unfold_with(stride, padding)(*tensors)
    assert not gpu.faults
    torch.testing.assert_close(out[:pixels].float(), expected, rtol=0, atol=0)
    assert not out[pixels:].any(), "pixels after the last image are not zero"
