"""Compare a convolution in Gluon, an implicit GEMM with loads in im2col mode, with float64.

Its structure follows Triton's tutorial 13-conv-im2col: each row of A is an output pixel. For each filter position and
each block of channels, one load brings the input pixels that are multiplied by that filter position.
"""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

import warpcheck


@gluon.jit  # type: ignore[untyped-decorator]
def convolve(  # type: ignore[no-untyped-def]
    image_map,
    filter_map,
    out_map,
    R,
    S,
    C,
    P,
    Q,
    padding,
    stride,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    IS_HOPPER: gl.constexpr,
    num_warps: gl.constexpr,
):
    first_row = gl.program_id(0) * BLOCK_M
    image = first_row // (P * Q)
    y = first_row % (P * Q) // Q * stride - padding
    x = first_row % Q * stride - padding
    smem_a = gl.allocate_shared_memory(image_map.dtype, image_map.block_shape, image_map.layout)
    smem_b = gl.allocate_shared_memory(image_map.dtype, filter_map.block_shape, filter_map.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    if IS_HOPPER:
        acc_layout: gl.constexpr = gl.NVMMADistributedLayout(
            version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, BLOCK_N, 16]
        )
        acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout=acc_layout)
    else:
        tmem_layout: gl.constexpr = blackwell.TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
        tmem_acc = blackwell.allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], tmem_layout)
        done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        mbarrier.init(done, count=1)
    phase = 0
    channel_blocks = gl.cdiv(C, BLOCK_K)
    for k in range(R * S * channel_blocks):
        channel = k % channel_blocks * BLOCK_K
        tap = k // channel_blocks
        mbarrier.expect(full, image_map.block_type.nbytes + filter_map.block_type.nbytes)
        offsets = [(tap // S).to(tl.int16), (tap % S).to(tl.int16)]
        tma.async_load_im2col(image_map, [image, y, x, channel], offsets, full, smem_a)
        # Past the last channel, the filter block holds weights of the next tap. The image is zero there.
        tma.async_load(filter_map, [0, tap * C + channel], full, smem_b)
        mbarrier.wait(full, phase=phase)
        if IS_HOPPER:
            acc = warpgroup_mma(smem_a, smem_b.permute((1, 0)), acc, is_async=True, use_acc=k > 0)
            acc = warpgroup_mma_wait(0, (acc,))
        else:
            blackwell.tcgen05_mma(smem_a, smem_b.permute((1, 0)), tmem_acc, use_acc=k > 0)
            blackwell.tcgen05_commit(done)
            mbarrier.wait(done, phase=phase)
        phase ^= 1
    if not IS_HOPPER:
        acc = tmem_acc.load()
    smem_out = gl.allocate_shared_memory(out_map.dtype, out_map.block_shape, out_map.layout)
    smem_out.store(acc.to(out_map.dtype))
    fence_async_shared()
    tma.async_store(out_map, [first_row, 0], smem_out)
    tma.store_wait(pendings=0)


# The shapes of the images (N, H, W, C) and of the filter (R, S), the stride, and the padding.
CASES = {
    "padded": ((2, 8, 10, 64), (3, 3), 1, 1),
    "strided": ((3, 9, 7, 64), (3, 3), 2, 1),
    "of 96 channels": ((1, 12, 12, 96), (2, 3), 2, 0),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a"])
def test_the_convolution_equals_conv2d(architecture: str, case: str) -> None:
    torch.manual_seed(0)
    (images, height, width, channels), (filter_height, filter_width), stride, padding = CASES[case]
    block_m, block_n, block_k = (64 if architecture == "sm_90a" else 128), 64, 64
    rows = (height + 2 * padding - filter_height) // stride + 1
    columns = (width + 2 * padding - filter_width) // stride + 1
    pixels = images * rows * columns
    layout = gl.NVMMASharedLayout.get_default_for([block_m, block_k], gl.float16)
    with warpcheck.gpu(architecture) as gpu:
        image = torch.randn(images, height, width, channels).half().cuda()
        weight = torch.randn(block_n, filter_height, filter_width, channels).half().cuda()
        out = torch.empty(pixels, block_n, device="cuda", dtype=torch.float16)
        image_map = TensorDescriptorIm2Col.from_tensor(
            image,
            [block_m, block_k],
            layout,
            element_strides=[1, stride, stride, 1],
            pixel_box_lower_corner=[-padding, -padding],
            pixel_box_upper_corner=[
                (rows - 1) * stride + 1 - height - padding,
                (columns - 1) * stride + 1 - width - padding,
            ],
        )
        convolve[(-(-pixels // block_m),)](
            image_map,
            TensorDescriptor.from_tensor(weight.reshape(block_n, -1), [block_n, block_k], layout),
            TensorDescriptor.from_tensor(out, [block_m, block_n], layout),
            *(filter_height, filter_width, channels, rows, columns, padding, stride),
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            IS_HOPPER=architecture == "sm_90a",
            num_warps=4,
        )
        nchw, kcrs = (tensor.cpu().double().permute(0, 3, 1, 2) for tensor in (image, weight))
        expected = torch.nn.functional.conv2d(nchw, kcrs, stride=stride, padding=padding).permute(0, 2, 3, 1)
        result = out.cpu().double().reshape(images, rows, columns, block_n)
        # The relative tolerance is half a unit in the last place of float16, plus the rounding of the accumulator.
        torch.testing.assert_close(result, expected, rtol=2**-11 + 1e-6, atol=1e-4)
    assert not gpu.faults
