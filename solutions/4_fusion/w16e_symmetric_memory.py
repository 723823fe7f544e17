"""Symmetric memory: all-reduce in one kernel through peer addresses.

Every rank has a vector of n elements, a buffer `staging` for at least n elements, and flags. Each rank has the
addresses of all ranks' buffers, and on GPUs that NVLink connects, it may load from them and store to them. x, out,
staging and flags are tensors of `world` addresses, rank 0's first. Chunk r starts at element r * chunk, where chunk =
cdiv(n, 8 * world) * 8, so every chunk starts at a multiple of 16 bytes. The last chunks may be short or empty.

    1. Rank r writes chunk p of its vector into the staging of rank p, as chunk r, for every peer p.
    2. When all peers have written, rank r adds its own chunk r and the chunks in its staging, in float32.
    3. It writes the result, rounded once, into chunk r of the output of every rank, including its own.
    4. It ends when all peers have written. Then its output is complete, and its staging may be reused.

Between steps 1 and 2, and at the end, blocks with the same index on all ranks wait for each other through flags, which
only grow from call to call. Here, the grader launches all ranks on one device, and axis 1 of the grid is the rank. On
several GPUs, each GPU launches its own rank, with `first` as this rank and one block along axis 1. Each rank sends 2
(world - 1) / world of the vector, as in a ring. A small vector takes little longer than two flag exchanges.

The grader enforces these limits on the largest case (world=4 n=4096 dtype=bfloat16); smaller cases get some slack for
partial tiles. Each load or store may touch at most 1.25 times the sectors that its bytes require. In total, global
memory accesses may move at most 2.25 times the size of the inputs and outputs.
"""

import torch
import triton
import triton.language as tl

MAX_BLOCKS = 132
TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}


@triton.jit
def address(table, rank, dtype: tl.constexpr):
    """Return the start of a rank's buffer."""
    return tl.multiple_of(tl.load(table + rank).to(tl.pointer_type(dtype)), 16)


@triton.jit
def meet(flags, rank, WORLD: tl.constexpr):
    """Wait for the same block on every rank. Afterward, each of them sees everything that the others wrote before."""
    tl.debug_barrier()  # all threads have written before one of them signals
    my_flags = address(flags, rank, tl.int32) + tl.program_id(0) * WORLD
    epoch = tl.atomic_add(my_flags + rank, 1, sem="relaxed", scope="sys") + 1
    for hop in range(1, WORLD):
        peer_flags = address(flags, (rank + hop) % WORLD, tl.int32) + tl.program_id(0) * WORLD
        tl.atomic_add(peer_flags + rank, 1, sem="release", scope="sys")
    for hop in range(1, WORLD):
        while tl.atomic_add(my_flags + (rank + hop) % WORLD, 0, sem="acquire", scope="sys") - epoch < 0:
            pass
    tl.debug_barrier()


@triton.jit(do_not_specialize=["first"])
def two_shot(x, out, staging, flags, first, octets, dtype: tl.constexpr, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    rank = first + tl.program_id(1)
    n = 8 * octets  # tells the compiler that masks are the same for 16 bytes, so it moves them at once
    chunk = tl.cdiv(n, 8 * WORLD) * 8
    begin, step = tl.program_id(0) * BLOCK, tl.num_programs(0) * BLOCK
    my_x = address(x, rank, dtype)
    for hop in tl.static_range(1, WORLD):  # ranks start with different peers, to spread the traffic
        peer = (rank + hop) % WORLD
        peer_staging = address(staging, peer, dtype) + rank * chunk
        for start in range(begin, chunk, step):
            offs = start + tl.arange(0, BLOCK)
            mask = (offs < chunk) & (peer * chunk + offs < n)
            tl.store(peer_staging + offs, tl.load(my_x + peer * chunk + offs, mask=mask), mask=mask)
    meet(flags, rank, WORLD)
    my_staging = address(staging, rank, dtype)
    for start in range(begin, chunk, step):
        offs = start + tl.arange(0, BLOCK)
        mask = (offs < chunk) & (rank * chunk + offs < n)
        acc = tl.load(my_x + rank * chunk + offs, mask=mask, other=0.0).to(tl.float32)
        for hop in tl.static_range(1, WORLD):
            peer = (rank + hop) % WORLD
            acc += tl.load(my_staging + peer * chunk + offs, mask=mask, other=0.0).to(tl.float32)
        for hop in tl.static_range(WORLD):
            peer_out = address(out, (rank + hop) % WORLD, dtype) + rank * chunk
            tl.store(peer_out + offs, acc.to(dtype), mask=mask)
    meet(flags, rank, WORLD)


def shape(n: int, world: int, itemsize: int) -> tuple[int, int, int]:
    """Return the blocks per rank, the elements per tile, and the warps; each thread has 16 bytes of a tile."""
    chunk = triton.cdiv(n, world)
    block = min(max(triton.next_power_of_2(chunk), 512 // itemsize), 16384 // itemsize)
    return min(triton.cdiv(chunk, block), MAX_BLOCKS), block, block * itemsize // 512


def launch(tables: list[torch.Tensor], first: int, ranks: int, n: int, dtype: torch.dtype) -> None:
    """Run ranks first … first + ranks - 1 here. tables: addresses of x, out, staging and flags."""
    world = len(tables[0])
    blocks, block, warps = shape(n, world, dtype.itemsize)
    two_shot[blocks, ranks](
        *tables, first, n // 8, TYPES[dtype], world, block, num_warps=warps, launch_cooperative_grid=True
    )


def addresses(buffers: torch.Tensor) -> torch.Tensor:
    """Return the addresses of the rows."""
    return torch.tensor([row.data_ptr() for row in buffers], dtype=torch.int64, device=buffers.device)


def all_reduce(x: torch.Tensor, world: int) -> torch.Tensor:
    """Return all outputs. x: all ranks' vectors, one after another, float32 or bfloat16, n a multiple of 8."""
    rows = x.view(world, -1)
    n = rows.shape[1]
    out = torch.empty_like(rows)
    staging = x.new_empty(world, n + 8 * world)
    flags = torch.zeros(world, MAX_BLOCKS * world, dtype=torch.int32, device=x.device)
    launch([addresses(buffer) for buffer in (rows, out, staging, flags)], 0, world, n, x.dtype)
    return out.view(-1)
