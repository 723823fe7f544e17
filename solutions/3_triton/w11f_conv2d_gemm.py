"""Convolution as an implicit GEMM, channels last.

conv2d(x, w) takes contiguous bfloat16 tensors x (batch, height, width, channels) and w (filters, side, side, channels)
of any nonzero size, with an odd side up to 7, and returns a new bfloat16 tensor (batch, height, width, filters):

    out[b, i, j, f] = sum over r, s, c of w[f, r, s, c] * x[b, i + r - p, j + s - p, c],   p = side // 2

x is 0 outside the image. Accumulate in float32, and round the result once. Tensors do not always start at a multiple of
16 bytes, and they may have more than 2**32 elements, so offsets need 64 bits.

This is a GEMM with one row per pixel of the batch and one column per filter, in which k runs over side * side *
channels. Row (b, i, j) of the left matrix contains the channels of the pixels around (i, j). Do not store that matrix;
compute the addresses of its tiles in the loop over k. The grader checks the values, the use of tensor cores, the
sectors, the memory, and on a GPU the time compared with cuDNN.

The grader enforces these limits on the largest case (batch=2 height=12 width=12 channels=64 filters=64 side=3); smaller
cases get some slack for partial tiles. Each load or store may touch at most 2 times the sectors that its bytes require.
Any workspace may be at most 0.1 times the size of the inputs and outputs. The multiply-adds must run on tensor cores.

Operations: 2 * pixels * filters * side^2 * channels, 118 billion for 32 images of 56 x 56 with 256 channels and 3 x 3
filters, 0.15 ms at the 800 TFLOP/s of a good GEMM on an H200. Bytes: 104 million, 0.025 ms. The kernel is
compute-bound, like a GEMM. The left matrix would have 9 times the bytes of x; here its tiles come from x, mostly
through L2, because a pixel is in the tiles of 9 neighbors. With channels last, a pixel's channels are contiguous, and a
neighbor is a whole number of pixels away. Its address is x + (pixel + (r - p) * width + s - p) * channels, and a mask
removes neighbors outside the image. Measured on an H200: 293 TFLOP/s for this layer, where cuDNN reaches 747. CUTLASS
and cuDNN compute the same loop, and on Hopper the TMA unit has a mode for the addresses (im2col).
"""

import torch
import triton
import triton.language as tl


@triton.jit
def conv2d_tiles(
    out, x, w, pixels, height, width, channels, filters,
    SIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of BLOCK_M pixels x BLOCK_N filters per program."""
    num_pid_n = tl.cdiv(filters, BLOCK_N)
    pixel = (tl.program_id(0) // num_pid_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    filter_ = (tl.program_id(0) % num_pid_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = pixel // width % height
    column = pixel % width
    blocks = tl.cdiv(channels, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k_step in range(SIDE * SIDE * blocks):
        tap = k_step // blocks
        r = tap // SIDE - SIDE // 2
        s = tap % SIDE - SIDE // 2
        ch = k_step % blocks * BLOCK_K + tl.arange(0, BLOCK_K)
        # In the flat order of pixels, (i, -1) would be the last pixel of the row above, so the mask needs i and j.
        mask = (pixel < pixels) & (row + r >= 0) & (row + r < height) & (column + s >= 0) & (column + s < width)
        a = tl.load(
            x + (pixel + r * width + s)[:, None] * channels + ch, mask=mask[:, None] & (ch < channels), other=0.0
        )
        b = tl.load(
            w + (filter_ * (SIDE * SIDE) + tap)[None, :] * channels + ch[:, None],
            mask=(filter_ < filters)[None, :] & (ch < channels)[:, None],
            other=0.0,
        )
        acc = tl.dot(a, b, acc)
    mask = (pixel < pixels)[:, None] & (filter_ < filters)
    tl.store(out + pixel[:, None] * filters + filter_, acc.to(tl.bfloat16), mask=mask)


def conv2d(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    batch, height, width, channels = x.shape
    filters, side = w.shape[:2]
    out = torch.empty(*x.shape[:3], len(w), dtype=x.dtype, device=x.device)
    pixels = batch * height * width
    block_m, block_n = 64, min(64, max(16, triton.next_power_of_2(filters)))
    if pixels >= 4096 and filters > 64:
        block_m, block_n = 128, 128
    block_k = min(64, max(16, triton.next_power_of_2(channels)))
    grid = (triton.cdiv(pixels, block_m) * triton.cdiv(filters, block_n),)
    conv2d_tiles[grid](
        out, x, w, pixels, height, width, channels, filters, side, block_m, block_n, block_k,
        num_warps=8 if block_m == 128 else 4, num_stages=3,
    )  # fmt: skip
    return out
