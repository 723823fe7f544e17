"""W4A16: a few rows of 16-bit numbers times a matrix of 4-bit weights, which are dequantized in registers.

w4a16(x, packed, scale, zero) takes contiguous tensors that start at a multiple of 16 bytes. x is float16 or bfloat16,
has 1 to 64 rows, and k columns, where k is a multiple of 8. packed, int32 of shape (n, k / 8), holds eight q from 0 to
15 in each word. scale, in the dtype of x and positive, and zero, uint8 from 0 to 15, are of shape (ceil(k / 128), n).
It returns x @ w.T in the dtype of x, for

    w[i, p] = scale[p // 128, i] * (q[i, p] - zero[p // 128, i])
    q[i, 8 c + j] = packed[i, c] >> (4 (j // 2) + 16 (j % 2)) & 15

The result must be as accurate as with exact weights and float32 sums that are rounded once. An exact weight has more
bits than x, so no kernel can store it in 16 bits. packed and scale may have more than 2**32 elements.

Most of the bytes are in packed, so read each word once, and never write weights to memory. A thread should unpack the
words that it loads, and with few instructions: an H200 has time for three per weight. The grader checks the values, the
bytes that are moved and allocated, and the use of tensor cores. On a GPU, it compares the time with PyTorch operators
that dequantize the weights, and then the library's GEMM.

The grader enforces these limits on the largest case (m=4 n=320 k=2048 dtype=float16); smaller cases get some slack for
partial tiles. In total, global memory accesses may move at most 2 times the size of the inputs and outputs. Any
workspace may be at most 0.5 times the size of the inputs and outputs. The multiply-adds must run on tensor cores.
"""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["M", "N"])
def w4a16_kernel(out_ptr, x_ptr, packed_ptr, scale_ptr, zero_ptr, M, N, WORDS,
                 BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr):  # fmt: skip
    """Compute BLOCK_N columns of the output for all rows, one group of 128 along k at a time. WORDS is k / 8."""
    # TODO: load the words, the scales and the zeros of a group, and the columns of x that belong to it
    # TODO: unpack the words in registers, multiply with tl.dot, and accumulate in float32


def w4a16(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    n = len(packed)
    # TODO: allocate the output, choose a tile, and launch w4a16_kernel
    raise NotImplementedError("launch the kernel, then return the output")
