"""Radix pass: a stable scatter by one digit, of which four make a sort.

Week 25. Ranks by __match_any_sync, a look-back for each of 256 digits, and a tile that is sorted before it is written.
"""

import torch

from kernelpath.course.problems import radix_pass
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

TILE = 4096
COUNT_DIGITS, SCAN_COUNTS, SCATTER = (
    cuda.kernel("w25c_radix_pass.cu", name) for name in ("count_digits", "scan_counts", "scatter")
)


def three_kernels(keys: torch.Tensor, first: torch.Tensor, shift: int) -> torch.Tensor:
    """Read the keys twice, and write each of them straight to its place."""
    n = keys.numel()
    tiles = (n + TILE - 1) // TILE
    out = torch.empty_like(keys)
    counts = torch.empty(radix_pass.DIGITS * tiles, dtype=torch.int32, device=keys.device)
    COUNT_DIGITS[tiles, 256](keys, counts, n, shift, tiles)
    SCAN_COUNTS[radix_pass.DIGITS, 256](counts, first, tiles)
    SCATTER[tiles, 256](keys, out, counts, n, shift, tiles)
    return out


EXERCISE = Exercise(
    entry="radix_pass",
    problem=radix_pass.PROBLEM,
    any_size=False,
    multiprocessors=2,  # 16 blocks of 256 threads are resident at once, fewer than the tiles of the largest case
    bench={"n": 1 << 27, "shift": 0, "distribution": "uniform"},  # 1 GiB
    sweep=tuple(
        {"n": 1 << 27, "shift": shift, "distribution": distribution}
        for shift, distribution in ((24, "uniform"), (0, "few"), (24, "sorted"))
    ),
    baseline=three_kernels,
    # On an H200, the answer has 1.93 (1.905 to 1.938), and the expert kernel 3.61 (3.60 to 3.62).
    min_speedup=1.7,
    # A tile of 4096 keys has 16 keys with each digit, 64 bytes that start anywhere. That moves 1.2 times the bytes, or
    # 1.3 times with the status words. Tiles of 2048 move 1.6 times the bytes, a second read of the keys 2.1 times, and
    # keys that go straight to their places 4.5 times.
    traffic=Traffic(bytes=2.5),
    deterministic=True,
)
