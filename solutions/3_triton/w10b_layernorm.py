"""Layer normalization over the rows of a matrix, in one kernel.

layernorm(x, weight, bias, eps) takes a contiguous 2-D tensor of bfloat16 or float32, of any number of rows and 1 to
65536 columns, and two vectors of its dtype with a weight and a bias for each column. It returns (y, mean, rstd):
y = (x - mean) * rstd * weight + bias in the dtype of x, and for each row in float32 its mean and
rstd = 1 / sqrt(mean of (x - mean)^2 over the row + eps). The arithmetic is float32, also where a row's mean is a few
hundred times its deviation. Tensors may have more than 2**32 elements: offsets need 64 bits.

Begin from the fused softmax: a row in the registers of one program, and two sums over it. mean and rstd are what the
backward pass will read. Then split long rows into several blocks, so that few lanes are masked.
Graded: the values, the bytes that are moved, and on a GPU the time against the formula written as operators.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def layernorm_rows(
    y, mean, rstd, x, weight, bias, rows, vectors, eps,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program for ROWS rows, held as PARTS blocks of BLOCK columns."""
    columns = vectors * WIDTH  # the compiler now knows what divides it, and with it every offset
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    begin = row.to(tl.int64) * columns
    held = ()
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        column = part * BLOCK + lane
        held += (tl.load(x + begin + column, mask=(row < rows) & (column < columns), other=0.0),)
    for part in tl.static_range(PARTS):
        total += held[part].to(tl.float32)
    average = tl.sum(total, axis=1, keep_dims=True) / columns
    squares = tl.zeros([ROWS, BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        centered = tl.where(part * BLOCK + lane < columns, held[part].to(tl.float32) - average, 0.0)
        squares += centered * centered
    scale = tl.rsqrt(tl.sum(squares, axis=1, keep_dims=True) / columns + eps)
    tl.store(mean + row, average, mask=row < rows)
    tl.store(rstd + row, scale, mask=row < rows)
    for part in tl.static_range(PARTS):
        column = part * BLOCK + lane
        gain = tl.load(weight + column, mask=column < columns).to(tl.float32)
        shift = tl.load(bias + column, mask=column < columns).to(tl.float32)
        result = (held[part].to(tl.float32) - average) * scale * gain + shift
        tl.store(y + begin + column, result.to(y.dtype.element_ty), mask=(row < rows) & (column < columns))


@triton.jit
def layernorm_team(
    y, mean, rstd, x, weight, bias, partial, arrived, rows, vectors, eps,
    WIDTH: tl.constexpr, TEAM: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """TEAM programs share a row: each holds a slice of it, and of weight and bias, and the statistics are merged."""
    columns = vectors * WIDTH
    member = tl.program_id(0) % TEAM
    slice_begin = member * (PARTS * BLOCK)
    lane = tl.arange(0, BLOCK)
    members = tl.arange(0, TEAM)
    counts = tl.minimum(tl.maximum(columns - members * (PARTS * BLOCK), 0), PARTS * BLOCK).to(tl.float32)
    count = tl.minimum(tl.maximum(columns - slice_begin, 1), PARTS * BLOCK).to(tl.float32)
    gains = ()
    shifts = ()
    for part in tl.static_range(PARTS):
        column = slice_begin + part * BLOCK + lane
        gains += (tl.load(weight + column, mask=column < columns, other=0.0),)
        shifts += (tl.load(bias + column, mask=column < columns, other=0.0),)
    for row in tl.range(tl.program_id(0) // TEAM, rows, tl.num_programs(0) // TEAM):
        begin = row.to(tl.int64) * columns
        held = ()
        for part in tl.static_range(PARTS):
            column = slice_begin + part * BLOCK + lane
            held += (tl.load(x + begin + column, mask=column < columns, other=0.0),)
        total = tl.zeros([BLOCK], tl.float32)
        for part in tl.static_range(PARTS):
            total += held[part].to(tl.float32)
        average = tl.sum(total, axis=0) / count
        squares = tl.zeros([BLOCK], tl.float32)
        for part in tl.static_range(PARTS):
            inside = slice_begin + part * BLOCK + lane < columns
            centered = tl.where(inside, held[part].to(tl.float32) - average, 0.0)
            squares += centered * centered
        here = partial + row.to(tl.int64) * (2 * TEAM)
        tl.store(here + member, average)
        tl.store(here + TEAM + member, tl.sum(squares, axis=0))
        meet(arrived + row, TEAM)
        averages = tl.load(here + members)
        average = tl.sum(averages * counts, axis=0) / columns
        apart = averages - average
        scale = tl.rsqrt(tl.sum(tl.load(here + TEAM + members) + apart * apart * counts, axis=0) / columns + eps)
        if member == 0:
            tl.store(mean + row, average)
            tl.store(rstd + row, scale)
        for part in tl.static_range(PARTS):
            column = slice_begin + part * BLOCK + lane
            result = (held[part].to(tl.float32) - average) * scale * gains[part].to(tl.float32)
            result += shifts[part].to(tl.float32)
            tl.store(y + begin + column, result.to(y.dtype.element_ty), mask=column < columns)


@triton.jit
def meet(arrived, TEAM: tl.constexpr):
    """Wait until TEAM programs are here; what each of them stored before can be loaded by all after."""
    tl.debug_barrier()  # all warps have stored
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_cas(arrived, TEAM, TEAM, sem="acquire") != TEAM:
        pass
    tl.debug_barrier()


def layernorm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    y = torch.empty_like(x)
    mean, rstd = torch.empty(2, len(x), dtype=torch.float32, device=x.device)
    tensors = (y, mean, rstd, x, weight, bias)
    width = common_width(columns)
    if columns <= 32_768:
        block = min(triton.next_power_of_2(columns), 2048)
        rows_each, parts = max(1, 1024 // block), triton.cdiv(columns, block)
        warps = max(2, block // 256)
        layernorm_rows[triton.cdiv(rows, rows_each),](
            *tensors, rows, columns // width, eps, width, rows_each, parts, block, num_warps=warps
        )
    else:
        team = triton.next_power_of_2(columns) // 8192
        teams = min(rows, max(1, 3 * multiprocessors(x.device) // team))
        partial = torch.empty(rows, 2, team, dtype=torch.float32, device=x.device)
        arrived = torch.zeros(rows, dtype=torch.int32, device=x.device)
        layernorm_team[teams * team,](
            *tensors, partial, arrived, rows, columns // width, eps, width, team, 4, 2048,
            num_warps=8, maxnreg=80, launch_cooperative_grid=True,
        )  # fmt: skip
    return y, mean, rstd


def common_width(columns: int) -> int:
    """The largest power of two up to 16 that divides the number of columns."""
    return min(columns & -columns, 16)


def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
