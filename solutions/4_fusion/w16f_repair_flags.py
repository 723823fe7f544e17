"""Repair flags: four all-reduces that somebody else wrote, whose ranks wait for each other in the wrong way.

run(kernel, x, world) launches one of these kernels on the vectors of `world` ranks, which are stored one after another
in the float32 tensor x, and returns the sum of all vectors for each rank. A rank is a program here, and all programs
run at the same time. On several GPUs the same kernels would have a table of addresses, as in symmetric_memory.

Repair each kernel with as few changes as possible, and name the kind of its fault in CAUSES. The kind is the name of an
exception of warpcheck, such as "Uninitialized", or "WrongValues" if the machine reports no fault but the values are
wrong. If a name is missing, `kp check` lists all names. `kp check repair_flags` runs all kernels and reports the first
kernel that fails. The PTX machine grades this exercise on a computer with a GPU, too, because most of these kernels
return the right sums on a GPU in nearly every run.

The grader checks the values, and that the machine finds no fault in any order of programs. It counts the statements
that the repair changes, at most 1 in push, 2 in last, 1 in chain, 2 in rounds, and none outside of the kernels, and it
checks CAUSES. A moved statement counts as two changes. Comments, line breaks, and changes to
CAUSES do not count.

push sets its flags without release. last counts a rank before the rank has stored its vector. chain waits for the flag
that it has set itself. rounds overwrites a buffer that the following rank may still read.
"""

import torch
import triton
import triton.language as tl

CAUSES = {
    "push": "Race",
    "last": "Race",
    "chain": "Uninitialized",
    "rounds": "Race",
}

# ---- push ----


@triton.jit
def push(x, out, staging, flags, n, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    """Write the vector into the staging buffer of every rank, and add up what the others wrote."""
    rank = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x_rank = tl.load(x + rank * n + offs, mask=offs < n)
    for peer in tl.static_range(WORLD):
        tl.store(staging + (peer * WORLD + rank) * n + offs, x_rank, mask=offs < n)
    tl.debug_barrier()
    for peer in tl.static_range(WORLD):
        tl.atomic_add(flags + peer, 1, sem="release")  # earlier stores are visible to a rank that acquires
    while tl.atomic_add(flags + rank, 0, sem="acquire") < WORLD:
        pass
    tl.debug_barrier()
    acc = tl.zeros([BLOCK], tl.float32)
    for peer in tl.static_range(WORLD):
        acc += tl.load(staging + (rank * WORLD + peer) * n + offs, mask=offs < n, other=0.0)
    tl.store(out + rank * n + offs, acc, mask=offs < n)


# ---- last ----


@triton.jit
def last(x, out, staging, flags, n, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    """Count the ranks. The last one adds up all vectors, and writes the sum for every rank."""
    rank = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x_rank = tl.load(x + rank * n + offs, mask=offs < n)
    tl.store(staging + rank * n + offs, x_rank, mask=offs < n)
    tl.debug_barrier()
    arrived = tl.atomic_add(flags, 1, sem="acq_rel")  # after the store that it announces
    if arrived == WORLD - 1:
        acc = tl.zeros([BLOCK], tl.float32)
        for peer in tl.static_range(WORLD):
            acc += tl.load(staging + peer * n + offs, mask=offs < n, other=0.0)
        for peer in tl.static_range(WORLD):
            tl.store(out + peer * n + offs, acc, mask=offs < n)


# ---- chain ----


@triton.jit
def chain(x, out, staging, flags, n, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    """Add the vector to the sum of the preceding ranks, and pass the sum on. The sum of the last rank is the result."""
    rank = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    acc = tl.load(x + rank * n + offs, mask=offs < n, other=0.0)
    if rank > 0:
        while tl.atomic_add(flags + rank, 0, sem="acquire") == 0:
            pass
        tl.debug_barrier()
        acc += tl.load(staging + (rank - 1) * n + offs, mask=offs < n, other=0.0)
    tl.store(staging + rank * n + offs, acc, mask=offs < n)
    tl.debug_barrier()
    tl.atomic_add(flags + rank + 1, 1, sem="release")
    while tl.atomic_add(flags + WORLD, 0, sem="acquire") == 0:  # the flag that the last rank sets
        pass
    tl.debug_barrier()
    result = tl.load(staging + (WORLD - 1) * n + offs, mask=offs < n)
    tl.store(out + rank * n + offs, result, mask=offs < n)


# ---- rounds ----


@triton.jit
def rounds(x, out, staging, flags, n, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    """Pass the vectors on around the ring of ranks: each round sends the vector that the last one received."""
    rank = tl.program_id(0)
    next_rank = (rank + 1) % WORLD
    offs = tl.arange(0, BLOCK)
    vector = tl.load(x + rank * n + offs, mask=offs < n, other=0.0)
    acc = vector
    for step in range(WORLD - 1):
        # A buffer for each round: nothing says when the following rank has read the one before.
        tl.store(staging + (next_rank * WORLD + step) * n + offs, vector, mask=offs < n)
        tl.debug_barrier()
        tl.atomic_add(flags + next_rank, 1, sem="release")
        while tl.atomic_add(flags + rank, 0, sem="acquire") < step + 1:
            pass
        tl.debug_barrier()
        vector = tl.load(staging + (rank * WORLD + step) * n + offs, mask=offs < n, other=0.0)
        acc += vector
    tl.store(out + rank * n + offs, acc, mask=offs < n)


# ---- launch ----

KERNELS = {"push": push, "last": last, "chain": chain, "rounds": rounds}


def run(kernel: str, x: torch.Tensor, world: int) -> torch.Tensor:
    n = len(x) // world
    out = torch.empty_like(x)
    staging = x.new_empty(world * world * n)
    flags = torch.zeros(world + 1, dtype=torch.int32, device=x.device)
    block = triton.next_power_of_2(n)
    KERNELS[kernel][world,](x, out, staging, flags, n, world, block, num_warps=4, launch_cooperative_grid=True)
    return out
