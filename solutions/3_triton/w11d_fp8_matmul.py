"""Product of float8 matrices with scales of blocks: two levels of sums, in the tensor cores and in registers.

fp8_matmul(a, b, scale_a, scale_b) takes contiguous float8_e4m3fn matrices a (m, k) and b (n, k) of any size; b has a
row for each column of the result, as the weight of nn.Linear has. It returns a new bfloat16 tensor (m, n). The scales
are contiguous float32 tensors: either of shape (1, 1) both, for all of a and all of b, or for blocks of 128,

    scale_a (ceil(k / 128), m)               one for each 128 values of a row of a
    scale_b (ceil(n / 128), ceil(k / 128))   one for each 128 x 128 values of b

    out[i, j] = sum over p of a[i, p] * scale_a[p // 128, i] * b[j, p] * scale_b[j // 128, p // 128]

The sum must be that of float32: a tensor core of Hopper keeps 14 bits of it, so hand its sum over to registers at least
every 512 values along k. Tensors do not always begin at a multiple of 16 bytes, and may have more than 2**32 elements:
offsets need 64 bits.

Begin with one tile of out per program and total += tl.dot(x, y) * scales, 128 values along k at a time.
Graded: the values, that tensor cores make the products, the bytes that are moved, and on a GPU the time against
matrices that are dequantized to bfloat16 and multiplied by the library.

"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEPTH = tl.constexpr(128)
"""Values along k that the tensor cores sum before they hand over, and that share a scale."""


@triton.jit
def product(
    a, b, scale_a, scale_b, out, m, n, k,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Two tiles of ROWS x COLUMNS of out, one below the other, per program. BLOCKS: whether scales are of blocks."""
    # GROUP programs below one another, then the next column of tiles: those in flight share rows of a and b in L2.
    down, across = tl.cdiv(m, 2 * ROWS), tl.cdiv(n, COLUMNS)
    program = tl.program_id(0)
    first = program // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    row = (first + program % (GROUP * across) % height) * (2 * ROWS)
    column = program % (GROUP * across) // height * COLUMNS

    blocks = tl.cdiv(k, DEPTH)
    upper, lower = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for block in range(0, blocks):  # what a descriptor reads beyond the matrix is 0
        y = b.load([column, block * DEPTH]).T
        # One half after the other: only one needs registers for a sum that is still to be handed over.
        if BLOCKS:
            of_b = tl.load(scale_b + (column // DEPTH).to(tl.int64) * blocks + block)
            of_rows = scale_a + block.to(tl.int64) * m
            upper += tl.dot(a.load([row, block * DEPTH]), y) * (of_b * scales(of_rows, row, m, ROWS))[:, None]
            lower += (
                tl.dot(a.load([row + ROWS, block * DEPTH]), y) * (of_b * scales(of_rows, row + ROWS, m, ROWS))[:, None]
            )
        else:
            upper += tl.dot(a.load([row, block * DEPTH]), y)
            lower += tl.dot(a.load([row + ROWS, block * DEPTH]), y)
    if not BLOCKS:
        scale = tl.load(scale_a) * tl.load(scale_b)
        upper *= scale
        lower *= scale
    store(out, upper, row, column, m, n, ROWS, COLUMNS)
    store(out, lower, row + ROWS, column, m, n, ROWS, COLUMNS)


@triton.jit
def scales(of_rows, row, m, ROWS: tl.constexpr):
    rows = row + tl.arange(0, ROWS)
    return tl.load(of_rows + rows, mask=rows < m, other=0.0)


@triton.jit
def store(out, total, row, column, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    inside = (rows[:, None] < m) & (columns < n)
    tl.store(out + rows.to(tl.int64)[:, None] * n + columns, total.to(tl.bfloat16), mask=inside)


@triton.jit
def copy_rows(out, x, columns, stride, BLOCK: tl.constexpr):
    """A row of x to where its next multiple of 16 bytes is."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + column, mask=column < columns)
    tl.store(out + row * stride + column, value, mask=column < columns)


def tiles(x: torch.Tensor, height: int) -> TensorDescriptor:
    """Of a matrix of bytes. Rows must begin at multiples of 16 bytes for a tensor copy: if they do not, of its copy."""
    rows, columns = x.shape
    if columns % 16 or x.data_ptr() % 16:
        aligned = torch.empty(rows, triton.cdiv(columns, 16) * 16, dtype=x.dtype, device=x.device)
        copy_rows[rows, triton.cdiv(columns, 4096)](aligned, x, columns, aligned.shape[1], 4096)
        x = aligned
    return TensorDescriptor(x, [rows, columns], [x.shape[1], 1], [height, DEPTH.value])


def fp8_matmul(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, len(b)
    out = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    multiprocessors = torch.cuda.get_device_properties(a.device).multi_processor_count
    columns = 128 if triton.cdiv(m, 128) * triton.cdiv(n, 128) >= multiprocessors else 64
    grid = (triton.cdiv(m, 128) * triton.cdiv(n, columns),)
    blocks = scale_a.numel() > 1 or scale_b.numel() > 1
    left, right = tiles(a, 64), tiles(b, columns)
    product[grid](left, right, scale_a, scale_b, out, m, n, k, 64, columns, 8, blocks, num_warps=4, num_stages=3)
    return out
