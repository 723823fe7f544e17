"""W4A16: a few rows of 16-bit numbers times a matrix of 4-bit weights, which are dequantized in registers.

w4a16(x, packed, scale, zero) takes contiguous tensors that start at a multiple of 16 bytes. x is float16 or bfloat16,
has 1 to 64 rows, and k columns, where k is a multiple of 8. packed, int32 of shape (n, k / 8), holds eight q from 0 to
15 in each word. scale, in the dtype of x, and zero, uint8 from 0 to 15, are of shape (ceil(k / 128), n). It returns x @
w.T in the dtype of x, for

    w[i, p] = scale[p // 128, i] * (q[i, p] - zero[p // 128, i])
    q[i, 8 c + j] = packed[i, c] >> (4 (j // 2) + 16 (j % 2)) & 15

The result must be as accurate as with exact weights and float32 sums that are rounded once. An exact weight has more
bits than x, so no kernel can store it in 16 bits. packed may have more than 2**32 elements: offsets need 64 bits.

The words take most of the bytes, so read them once, and write no weight to memory. A thread should unpack the words
that it loads, and with few instructions: an H200 has time for three per weight. The grader checks the values, the bytes
that are moved and allocated, and the use of tensor cores. On a GPU, it compares the time with weights that operators
dequantize for the library.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. In total, global
memory accesses may move at most 2 times the size of the inputs and outputs. Any workspace may be at most 0.5 times the
size of the inputs and outputs. The multiply-adds must run on tensor cores.

Bytes: half a byte per weight, and 3 bytes per 128 weights, which makes 61 MB for 28672 x 4096, or 13.7 us at the 4.5
TB/s that an H200 reads. Operations: 2 per weight and row, so 4 m per byte. With more than about 55 rows, the kernel
would be limited by tensor cores at 989 TFLOP/s. With fewer rows, it is memory-bound, as long as the integer
instructions keep up.

Tensor cores multiply q - zero, an integer that both formats represent exactly, and the scale is applied to the sum of a
group. No conversion instruction is needed: 1024.0 in float16 with q in its lowest bits is 1024 + q, and 128.0 in
bfloat16 is 128 + q. Subtracting 1024 + zero is exact (Kim et al., arXiv 2211.10017). One AND and one OR, which ptxas
merges into one LOP3, do this for both halves of a word. tl.join keeps the parts in the thread that loaded the word. A
shift by a block of eight amounts would distribute the parts over threads, through shared memory. That takes 17
instructions per weight on the PTX machine instead of 6, although many of them are moves that ptxas removes.
"""

import torch
import triton
import triton.language as tl

BLOCK_N = 64
# The bits of a power of two whose last fraction bit is worth 1, in both halves of a word, and its value.
MAGIC = {torch.float16: (0x64006400, 1024), torch.bfloat16: (0x43004300, 128)}


@triton.jit(do_not_specialize=["M", "N"])
def w4a16_kernel(out_ptr, x_ptr, packed_ptr, scale_ptr, zero_ptr, M, N, K,
                 MAGIC: tl.constexpr, BIAS: tl.constexpr,
                 BLOCK_N: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip
    """Compute BLOCK_N columns of the output for all rows, one group of 128 along k at a time."""
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.arange(0, ROWS)
    acc = tl.zeros([BLOCK_N, ROWS], tl.float32)
    for group in tl.range(0, tl.cdiv(K, 128)):
        word = group * 16 + tl.arange(0, 16)
        packed = tl.load(packed_ptr + column[:, None].to(tl.int64) * (K // 8) + word[None, :],
                         mask=(column < N)[:, None] & (word < K // 8)[None, :], other=0)  # fmt: skip
        of_group = group.to(tl.int64) * N + column
        scale = tl.load(scale_ptr + of_group, mask=column < N, other=0.0).to(tl.float32)
        zero = tl.load(zero_ptr + of_group, mask=column < N, other=0)
        p = group * 128 + tl.arange(0, 128)
        x = tl.load(x_ptr + row[:, None] * K + p[None, :], mask=(row < M)[:, None] & (p < K)[None, :], other=0.0)
        pair0 = packed & 0x000F000F | MAGIC  # BIAS + q for weights 0 and 1, in the two halves
        pair1 = packed >> 4 & 0x000F000F | MAGIC
        pair2 = packed >> 8 & 0x000F000F | MAGIC
        pair3 = packed >> 12 & 0x000F000F | MAGIC
        pairs = tl.reshape(tl.join(tl.join(pair0, pair2), tl.join(pair1, pair3)), [BLOCK_N, 64])
        low = pairs.to(tl.int16).to(x.dtype, bitcast=True)
        high = (pairs >> 16).to(tl.int16).to(x.dtype, bitcast=True)
        q = tl.reshape(tl.join(low, high), [BLOCK_N, 128])
        # Past the end of k, q - zero is not 0, but x is.
        weight = q - (BIAS + zero.to(tl.int32)).to(x.dtype)[:, None]
        acc += tl.dot(weight, x.T) * scale[:, None]
    tl.store(out_ptr + row[None, :] * N + column[:, None], acc.to(out_ptr.dtype.element_ty),
             mask=(column < N)[:, None] & (row < M)[None, :])  # fmt: skip


def w4a16(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    m, k = x.shape
    n = len(packed)
    out = x.new_empty(m, n)
    rows = max(16, triton.next_power_of_2(m))  # tl.dot needs at least 16
    grid = (triton.cdiv(n, BLOCK_N),)
    w4a16_kernel[grid](
        out, x, packed, scale, zero, m, n, k, *MAGIC[x.dtype], BLOCK_N, rows, num_warps=8 if rows > 32 else 4
    )
    return out
