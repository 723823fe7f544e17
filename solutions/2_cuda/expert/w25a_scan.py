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

Traffic: each element takes 4 bytes read and 4 written, and each tile of 8192 reads up to 256 status words of 8 bytes,
which are 3% more. The bound is the time of a copy. One addition per element costs next to nothing, because an SM
receives fewer than 5 elements per cycle.

- three kernels (sums of tiles, scan of the sums, scan of tiles) move 12 bytes for each element
- a chain, in which each tile waits for the prefix of the tile before it, moves 8 bytes, but every tile waits for all
  earlier tiles
- decoupled look-back moves 8 bytes and waits only for sums, which tiles publish before they wait themselves

The tile numbers come from a counter, so every order of blocks makes progress.

In a graded run on an H200, this kernel took 737 us for 2**28 elements, and the three kernels took 831 us. A previous
version, with tiles of 4096 elements and one warp that looked back, took 849 us. The look-back is the bottleneck. In one
session, in which a copy took 511 us, CUB's scan 716 us, and torch.cumsum 853 us, variants of this kernel took:
- without look-back, with wrong sums: 526 us
- tiles of 4096 elements, one warp looks back: 1,050 us; the whole block looks back: 903 us
- the same with 512 threads and tiles of 8192: 892 us, and 806 us with loads of 16 bytes
- tiles of 7168, with rows in registers: 763 us; with an exchange through shared memory instead: 780 us
In another session, tiles of 7168 took 750 us, and those of 8192 took 720 us. No other size of a block (128 to 768
threads) or tile (4096 to 21,504 elements) was faster, and waiting between polls changed nothing.

Source: Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA NVR-2016-002.
"""

import torch

from kernelpath.lanes import cuda

THREADS, ITEMS = 256, 32
TILE = THREADS * ITEMS


def scan(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    tiles = (n + TILE - 1) // TILE
    status = torch.zeros(tiles + 1, dtype=torch.int64, device=x.device)  # the last word counts the tiles taken
    next_tile = status[tiles:].view(torch.int32)
    cuda.kernel("w25a_scan.cu", "scan")[tiles, THREADS](x, out, status, next_tile, n, x.data_ptr() % 16 == 0)
    return out
