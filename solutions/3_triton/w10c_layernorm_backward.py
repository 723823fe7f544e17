"""The gradients of layer normalization, in one pass over x and dy.

layernorm_backward(dy, x, weight, mean, rstd) takes two contiguous 2-D tensors of bfloat16 or float32, of any number of
rows and 1 to 32768 columns, a weight for each column in their dtype, and what the forward pass kept: for each row in
float32 its mean and its rstd. It returns (dx, dweight, dbias) in the dtype of x. With xhat = (x - mean) * rstd and
g = dy * weight, dx = (g - mean of g - xhat * mean of g * xhat) * rstd along each row; down each column dweight is the
sum of dy * xhat, and dbias the sum of dy. The arithmetic is float32.
Tensors may have more than 2**32 elements: offsets need 64 bits.

Give a program many rows: dx needs nothing but the row, and the sums of the columns stay in registers until the last
row. What each program has summed goes to a small buffer, which a second kernel sums.
Graded: the values, the bytes that are moved, and on a GPU the time against PyTorch's operator.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def backward_stripes(
    dx, partial, dy, x, weight, mean, rstd, sums, arrived, rows, vectors,
    WIDTH: tl.constexpr, TEAM: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Every so many rows belong to a stripe: dx is stored, and what dweight and dbias get from them is summed here."""
    columns = vectors * WIDTH  # the compiler now knows what divides it, and with it every offset
    member = tl.program_id(0) % TEAM
    stripe = tl.program_id(0) // TEAM
    stripes = tl.num_programs(0) // TEAM
    column = member * BLOCK + tl.arange(0, BLOCK)[None, :]
    known = column < columns
    gain = tl.load(weight + column, mask=known, other=0.0).to(tl.float32)
    dweight = tl.zeros([ROWS, BLOCK], tl.float32)
    dbias = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(stripe * ROWS, rows, stripes * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & known
        begin = row.to(tl.int64) * columns
        values = tl.load(x + begin + column, mask=inside, other=0.0).to(tl.float32)
        upstream = tl.load(dy + begin + column, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(rstd + row, mask=row < rows, other=0.0)
        xhat = tl.where(inside, (values - tl.load(mean + row, mask=row < rows, other=0.0)) * scale, 0.0)
        g = upstream * gain
        level = tl.sum(g, axis=1, keep_dims=True)
        along = tl.sum(g * xhat, axis=1, keep_dims=True)
        if TEAM > 1:
            here = sums + row.to(tl.int64) * (2 * TEAM)
            tl.store(here + member, level)
            tl.store(here + TEAM + member, along)
            meet(arrived + first, TEAM)
            members = tl.arange(0, TEAM)[None, :]
            level = tl.sum(tl.load(here + members), axis=1, keep_dims=True)
            along = tl.sum(tl.load(here + TEAM + members), axis=1, keep_dims=True)
        tl.store(dx + begin + column, ((g - (level + xhat * along) / columns) * scale).to(dx.dtype.element_ty), inside)
        dweight += upstream * xhat
        dbias += upstream
    here = partial + stripe.to(tl.int64) * (2 * columns) + column
    tl.store(here, tl.sum(dweight, axis=0, keep_dims=True), mask=known)
    tl.store(here + columns, tl.sum(dbias, axis=0, keep_dims=True), mask=known)


@triton.jit
def meet(arrived, TEAM: tl.constexpr):
    """Wait until TEAM programs are here; what each of them stored before can be loaded by all after."""
    tl.debug_barrier()  # all warps have stored
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_cas(arrived, TEAM, TEAM, sem="acquire") != TEAM:
        pass
    tl.debug_barrier()


@triton.jit
def sum_stripes(out, partial, stripes, length, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = sum of partial[:, i], for dweight and dbias, which lie side by side."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(0, stripes, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < stripes) & (column < length)
        total += tl.load(partial + row * length + column, mask=inside, other=0.0)
    result = tl.sum(total, axis=0, keep_dims=True)
    tl.store(out + column, result.to(out.dtype.element_ty), mask=column < length)


def layernorm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    width = min(columns & -columns, 16)  # the largest power of two up to 16 that divides columns
    block = min(triton.next_power_of_2(columns), 16_384)
    team = triton.cdiv(triton.next_power_of_2(columns), block)
    rows_each = max(1, 2048 // block)
    warps = min(32, max(4, block // 512))
    stripes = min(triton.cdiv(rows, rows_each), max(1, multiprocessors(x.device) * (32 // warps) // team))
    dx = torch.empty_like(x)
    partial = torch.empty(stripes, 2, columns, dtype=torch.float32, device=x.device)
    sums = torch.empty(rows if team > 1 else 0, 2, team, dtype=torch.float32, device=x.device)
    arrived = torch.zeros(rows if team > 1 else 0, dtype=torch.int32, device=x.device)
    backward_stripes[stripes * team,](
        dx, partial, dy, x, weight, mean, rstd, sums, arrived, rows, columns // width,
        width, team, rows_each, block, 2, num_warps=warps, launch_cooperative_grid=team > 1,
    )  # fmt: skip
    gradients = torch.empty(2, x.shape[1], dtype=x.dtype, device=x.device)
    sum_stripes[triton.cdiv(2 * columns, 64),](gradients, partial, stripes, 2 * columns, 32, 64)
    return dx, *gradients


def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
