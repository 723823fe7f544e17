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
    divisor = 1 + tl.exp2(x * (-2.3022082 - 0.10294324 * x * x))
    return x * tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [divisor], tl.float32, True, 1)


@triton.jit(do_not_specialize_on_alignment=["bias", "scale"])
def product_with_epilogue(
    a, b, bias, scale, residual, out, m, n, k,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """A tile of ROWS x COLUMNS of out per program. a and b are descriptors; STEP divides n."""
    n = n // STEP * STEP  # changes nothing, but tells the compiler how wide accesses may be
    # GROUP tiles below one another, then the next column of tiles: programs in flight share rows of a and b in L2.
    down, across = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    program = tl.program_id(0)
    first = program // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    row = (first + program % (GROUP * across) % height) * ROWS
    column = program % (GROUP * across) // height * COLUMNS

    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, k, DEPTH):  # what a descriptor reads beyond the matrix is 0
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)

    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    inside = (rows[:, None] < m) & (columns < n)
    at = rows.to(tl.int64)[:, None] * n + columns
    total += tl.load(bias + columns, mask=columns < n).to(tl.float32)
    total = gelu(total) * tl.load(scale + rows, mask=rows < m)[:, None]
    total += tl.load(residual + at, mask=inside).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


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


def gemm_epilogue(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty_like(residual)
    multiprocessors = torch.cuda.get_device_properties(a.device).multi_processor_count
    side = 128 if triton.cdiv(m, 128) * triton.cdiv(n, 128) >= multiprocessors else 64
    grid = (triton.cdiv(m, side) * triton.cdiv(n, side),)
    product_with_epilogue[grid](
        *(described(a, side, 64), described(b, 64, side), bias, scale, residual, out, m, n, k),
        *(side, side, 64, 8, 1 if n % 8 else 8),
        num_warps=4,
        num_stages=3,
    )
    return out
