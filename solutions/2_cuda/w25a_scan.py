"""Scan: the launch.

scan(x) takes a contiguous int32 vector of 1 to 2**30 elements, not always aligned to 16 bytes (x[1:] is a legal input).
It returns a new int32 vector of the same length with the inclusive prefix sums: out[i] = x[0] + … + x[i]. Every prefix
sum fits in int32.

Write the kernel in w25a_scan.cu, then launch it here. The grader checks the values and the bytes that the kernel moves.
On a GPU, it compares the time with three kernels that read x twice. The limit on bytes allows one read of x and one
write of the result, so blocks have to pass sums to each other while the kernel runs. Loads that a loop repeats until a
value changes are not counted. The grader starts the blocks in ascending and in descending order, and in the largest
case there are more tiles of 4096 elements than blocks that fit on the simulated GPU at once: use atomicAdd, not
blockIdx.x, to give a block its tile.

A block publishes a value with the stub's publish(), with an atomic operation, or with a __threadfence() between the
value and its flag. CUDA C++ does not promise that a volatile access of 8 bytes is indivisible, so the grader reports a
race if blocks pass values by volatile accesses alone, even a sum and its state in one word.

The grader enforces these limits on the largest case (n=300007); smaller cases get some slack for partial tiles. In
total, global memory accesses may move at most 1.25 times the size of the inputs and outputs. Bank conflicts may add at
most 1 wavefront per request.

Traffic: each element takes 4 bytes read and 4 written, and each tile of 4096 takes 8 bytes of status. The bound is the
time of a copy. One addition per element costs next to nothing, because an SM receives fewer than 5 elements per cycle.

- three kernels (sums of tiles, scan of the sums, scan of tiles) move 12 bytes for each element
- a chain, in which each tile waits for the prefix of the tile before it, moves 8 bytes, but every tile waits for all
  earlier tiles
- decoupled look-back moves 8 bytes and waits only for sums, which tiles publish before they wait themselves

The tile numbers come from a counter, so every order of blocks makes progress. Padding after every 32 words of shared
memory avoids bank conflicts, both when neighboring lanes access neighbors and when each thread accesses 16 neighbors.

When graded on an H200, this kernel took 849 us for 2**28 elements, and the three kernels took 831 us. The expert
kernel, whose tiles are larger and whose whole block looks back, took 753 us. Waiting in the look-back takes longer than
the bytes.

Source: Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA NVR-2016-002.
"""

import torch

from kernelpath.lanes import cuda

THREADS, ITEMS = 256, 16
TILE = THREADS * ITEMS


def scan(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    tiles = (n + TILE - 1) // TILE
    status = torch.zeros(tiles, dtype=torch.int64, device=x.device)
    next_tile = torch.zeros(1, dtype=torch.int32, device=x.device)
    cuda.kernel("w25a_scan.cu", "scan")[tiles, THREADS](x, out, status, next_tile, n)
    return out
