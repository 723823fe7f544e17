"""Scan: prefix sums in one pass by decoupled look-back.

Week 25. out[i] = x[0] + … + x[i] for an int32 vector. Blocks pass sums to later blocks while the kernel runs, so that
each element is read once.
"""

import torch

from kernelpath.course import sweeps
from kernelpath.course.problems import prefix_sum
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

TILE = 4096
SUM_TILES, SCAN_SUMS, SCAN_TILES = (
    cuda.kernel("w25a_scan.cu", name) for name in ("sum_tiles", "scan_sums", "scan_tiles")
)


def three_kernels(x: torch.Tensor) -> torch.Tensor:
    """Read x twice, to sum the tiles and to scan them: 12 bytes for each element."""
    n = x.numel()
    tiles = (n + TILE - 1) // TILE
    out = torch.empty_like(x)
    sums = torch.empty(tiles, dtype=torch.int32, device=x.device)
    SUM_TILES[tiles, 256](x, sums, n)
    SCAN_SUMS[1, 1024](sums, tiles)
    SCAN_TILES[tiles, 256](x, out, sums, n)
    return out


EXERCISE = Exercise(
    entry="scan",
    problem=prefix_sum.PROBLEM,
    any_size=False,
    # 56 blocks of 256 threads fit at once, or 35 if a thread has 48 registers. They are fewer than the tiles of the
    # largest case, so the order in which blocks start matters. They are more than 32, so a warp that looks back may
    # find no prefix.
    multiprocessors=7,
    bench={"n": 1 << 28},  # 2 GiB read and written, 40 times the L2 of an H200
    sweep=tuple(case for case in sweeps.vectors() if case["n"] <= 1 << 28),
    baseline=three_kernels,
    # On an H200, the answer has 0.98 (0.970 to 0.986), and the expert kernel 1.10 (1.097 to 1.107). By bytes it would
    # be 1.5, but the look-back costs most of the difference.
    min_speedup=0.9,
    # One pass moves 1.0 times the bytes. Status words add up to 0.05 with a tile per warp. A second read of x adds 0.5.
    traffic=Traffic(bank_conflicts=1.0, bytes=1.25),
    deterministic=True,
)
