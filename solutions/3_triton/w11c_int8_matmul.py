"""GEMM of int8 matrices: int32 accumulators on the tensor cores, scaled in the epilogue.

int8_matmul(a, b, scale_a, scale_b) takes contiguous int8 matrices a (m, k) and b (n, k), for any positive m and n and
any k from 1 to 131,071, and float32 vectors scale_a (m) and scale_b (n). b has one row per column of the result, like
the weight of nn.Linear. It returns a new bfloat16 tensor (m, n):

    out[i, j] = scale_a[i] * scale_b[j] * sum of a[i, :] * b[j, :]

The sum must be exact, and the result rounded once. Tensors do not always start at a multiple of 16 bytes, and they may
have more than 2**32 elements, so offsets need 64 bits.

Start with one tile of out per program, masked loads, and tl.dot(x, y, total, out_dtype=tl.int32). Then check how many
registers and how much shared memory a program uses, and how many programs fit on an SM. The grader checks the values,
the use of tensor cores, the bytes moved, and on a GPU the time compared with dequantizing the matrices to bfloat16 and
multiplying them with the library.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. Each load or store
may touch at most 2 times the sectors that its bytes require. In total, global memory accesses may move at most 3.5
times the size of the inputs and outputs. The multiply-adds must run on tensor cores.

Operations: 2 m n k, 137 billion at 4096 cubed, 0.07 ms at the 1979 TOP/s that NVIDIA states for int8 on Hopper. Bytes:
67 million, 0.016 ms. So the kernel is compute-bound, and it loses time only when the tensor cores wait. On an H200 at
4096 (8192) cubed, in TOP/s:

    tiles of 128 x 128, 4 warps, 3 stages: two programs per SM       1280 (1370)
    tiles of 128 x 256, 8 warps, 4 stages: one                       1140 (1320)
    the same with pointers instead of descriptors                    1060 (1220)
    tiles of 128 x 128, 8 warps, 4 stages: one                        810  (940)
    torch._int_mm, without scales                                     830  (950)

While one program waits for its first tiles, or scales and stores its last tile, the other multiplies. Two programs with
4 warps each fit, because a thread uses fewer than 256 registers, 128 of them for accumulators, and the stages of a
program take 96 KB.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def product(
    a, b, scale_a, scale_b, out, m, n, k,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Compute one tile of ROWS x COLUMNS of out per program."""
    # a and b are descriptors with tiles of length DEPTH along k.
    # Go down GROUP tiles before the next column of tiles, so that programs in flight share rows of a and b in L2.
    down, across = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    program = tl.program_id(0)
    first = program // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    row = (first + program % (GROUP * across) % height) * ROWS
    column = program % (GROUP * across) // height * COLUMNS

    total = tl.zeros((ROWS, COLUMNS), tl.int32)
    for start in range(0, k, DEPTH):  # what a descriptor reads beyond the matrix is 0
        total = tl.dot(a.load([row, start]), b.load([column, start]).T, total, out_dtype=tl.int32)

    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    of_rows = tl.load(scale_a + rows, mask=rows < m)
    of_columns = tl.load(scale_b + columns, mask=columns < n)
    scaled = total.to(tl.float32) * of_rows[:, None] * of_columns
    inside = (rows[:, None] < m) & (columns < n)
    tl.store(out + rows.to(tl.int64)[:, None] * n + columns, scaled.to(tl.bfloat16), mask=inside)


@triton.jit
def copy_rows(out, x, columns, stride, BLOCK: tl.constexpr):
    """Copy each row of x to the next multiple of 16 bytes."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + column, mask=column < columns)
    tl.store(out + row * stride + column, value, mask=column < columns)


def tiles(x: torch.Tensor, height: int, depth: int) -> TensorDescriptor:
    """Describe a byte matrix, or an aligned copy if its rows don't start at multiples of 16 bytes, as TMA requires."""
    rows, columns = x.shape
    if columns % 16 or x.data_ptr() % 16:
        aligned = torch.empty(rows, triton.cdiv(columns, 16) * 16, dtype=x.dtype, device=x.device)
        copy_rows[rows, triton.cdiv(columns, 4096)](aligned, x, columns, aligned.shape[1], 4096, num_warps=8)
        x = aligned
    return TensorDescriptor(x, [rows, columns], [x.shape[1], 1], [height, depth])


def int8_matmul(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, len(b)
    out = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    if out.numel() == 0 or k == 0:
        return out.zero_()
    multiprocessors = torch.cuda.get_device_properties(a.device).multi_processor_count
    side = 128 if triton.cdiv(m, 128) * triton.cdiv(n, 128) >= multiprocessors else 64
    grid = (triton.cdiv(m, side) * triton.cdiv(n, side),)
    left, right = tiles(a, side, 128), tiles(b, side, 128)
    product[grid](left, right, scale_a, scale_b, out, m, n, k, side, side, 128, 16, num_warps=4, num_stages=3)
    return out
