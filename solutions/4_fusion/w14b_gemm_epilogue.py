"""Matrix product with an epilogue: bias, GELU, a scale for each row, and the residual, before anything is stored.

gemm_epilogue(a, b, bias, scale, residual) takes contiguous matrices a (m, k), b (k, n) and residual (m, n) of any size
and a vector bias (n), all bfloat16 or all float16, and a float32 vector scale (m). It returns a new tensor (m, n) in
their dtype:

    out[i, j] = scale[i] * gelu(bias[j] + sum over p of a[i, p] * b[p, j]) + residual[i, j]
    gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

The sums are float32, and so is all that follows until the result is rounded, once. Tensors do not always begin at a
multiple of 16 bytes, and may have more than 2**32 elements: offsets need 64 bits.

Begin with a product of week 11. When its loop is done a program holds its sums in registers: finish them there.
Graded: the values, that tensor cores make the products, the bytes that are moved, and on a GPU the time against cuBLAS
and one kernel for all the rest.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def gelu(x):
    """The formula above. triton.language has exp, exp2 and sigmoid, and no tanh."""
    z = x * (0.7978845608028654 + 0.035677408136300125 * x * x)
    tanh = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [z], tl.float32, True, 1)
    half = 0.5 * x
    return half + half * tanh


@triton.jit
def places(row, column, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Of a block of an m x n matrix: the offset of each element, and whether it is inside."""
    rows = (row + tl.arange(0, ROWS))[:, None]
    columns = (column + tl.arange(0, COLUMNS))[None, :]
    return rows.to(tl.int64) * n + columns, (rows < m) & (columns < n)


@triton.jit(do_not_specialize_on_alignment=["bias", "scale"])
def product_with_epilogue(
    a, b, bias, scale, residual, out, m, n, k,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Tiles of ROWS x COLUMNS of out. a and b are descriptors; STEP divides n."""
    n = n // STEP * STEP  # changes nothing, but tells the compiler how wide accesses may be
    HALF: tl.constexpr = COLUMNS // 2
    down, across = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    for tile in range(tl.program_id(0), down * across, tl.num_programs(0)):
        # GROUP tiles below one another, then the next column of tiles: programs in flight share rows of a and b in L2.
        first = tile // (GROUP * across) * GROUP
        height = min(down - first, GROUP)
        row = (first + tile % (GROUP * across) % height) * ROWS
        column = tile % (GROUP * across) // height * COLUMNS

        # Asked for now and needed after the loop: it arrives while tensor cores multiply.
        early = ()
        for i in tl.static_range(2):
            at, inside = places(row, column + i * HALF, m, n, ROWS, HALF)
            early += (tl.load(residual + at, mask=inside),)

        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for start in range(0, k, DEPTH):  # what a descriptor reads beyond the matrix is 0
            total = tl.dot(a.load([row, start]), b.load([start, column]), total)

        rows = row + tl.arange(0, ROWS)
        of_rows = tl.load(scale + rows, mask=rows < m)[:, None]
        # In halves, each of which changes its layout in shared memory before it is stored: that leaves room for stages.
        parts = tl.reshape(total, (ROWS, 2, HALF)).permute(0, 2, 1).split()
        for i in tl.static_range(2):
            columns = column + i * HALF + tl.arange(0, HALF)
            of_columns = tl.load(bias + columns, mask=columns < n).to(tl.float32)[None, :]
            value = gelu(parts[i] + of_columns) * of_rows + early[i].to(tl.float32)
            at, inside = places(row, column + i * HALF, m, n, ROWS, HALF)
            tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def copy_rows(out, x, columns, stride, BLOCK: tl.constexpr):
    """A row of x to where its next multiple of 16 bytes is."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + column, mask=column < columns)
    tl.store(out + row * stride + column, value, mask=column < columns)


def described(x: torch.Tensor, height: int, width: int) -> TensorDescriptor:
    """Blocks of x. Rows must begin at multiples of 16 bytes for a tensor copy: if they do not, of its copy."""
    rows, columns = x.shape
    if columns % 8 or x.data_ptr() % 16:
        aligned = torch.empty(rows, triton.cdiv(columns, 8) * 8, dtype=x.dtype, device=x.device)
        copy_rows[rows, triton.cdiv(columns, 4096)](aligned, x, columns, aligned.shape[1], 4096)
        x = aligned
    return TensorDescriptor(x, [rows, columns], [x.shape[1], 1], [height, width])


TILES = (
    (128, 256, 64, 4, 8, 1.0),
    (64, 128, 64, 4, 4, 0.65),
    (64, 64, 64, 4, 4, 0.5),
    (16, 64, 128, 5, 4, 0.2),
)
"""Rows, columns, depth, stages, warps, and about which share of the largest tile's speed this one reaches."""


def gemm_epilogue(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty_like(residual)
    multiprocessors = torch.cuda.get_device_properties(a.device).multi_processor_count
    rows, columns, depth, stages, warps, _ = tile_for(multiprocessors, m, n)
    programs = min(multiprocessors, triton.cdiv(m, rows) * triton.cdiv(n, columns))
    product_with_epilogue[programs,](
        *(described(a, rows, depth), described(b, depth, columns), bias, scale, residual, out, m, n, k),
        *(rows, columns, depth, 8, 1 if n % 8 else 8),
        num_stages=stages,
        num_warps=warps,
    )
    return out


def tile_for(multiprocessors: int, m: int, n: int) -> tuple[int, int, int, int, int, float]:
    """The tile that takes the least time: as many rounds as the multiprocessors need for all tiles, times its own."""

    def time(tile: tuple[int, int, int, int, int, float]) -> float:
        tiles = triton.cdiv(m, tile[0]) * triton.cdiv(n, tile[1])
        return triton.cdiv(tiles, multiprocessors) * tile[0] * tile[1] / tile[-1]

    return min(TILES, key=time)
