"""Compact: keep the positive elements, in order, in one pass.

Week 25. The place of an element depends on all earlier elements, by a scan of ones and zeros that is never stored.
"""

import torch

from kernelpath.course.problems import compaction
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

TILE = 4096
COUNT_TILES, SCAN_COUNTS, WRITE_TILES = (
    cuda.kernel("w25b_compact.cu", name) for name in ("count_tiles", "scan_counts", "write_tiles")
)


def three_kernels(x: torch.Tensor, out: torch.Tensor, count: torch.Tensor) -> None:
    """Read x twice: first to count the elements of the tiles, and then to write them."""
    n = x.numel()
    tiles = (n + TILE - 1) // TILE
    counts = torch.empty(tiles, dtype=torch.int32, device=x.device)
    COUNT_TILES[tiles, 256](x, counts, n)
    SCAN_COUNTS[1, 1024](counts, count, tiles)
    WRITE_TILES[tiles, 256](x, out, counts, n)


EXERCISE = Exercise(
    entry="compact",
    problem=compaction.PROBLEM,
    any_size=False,
    multiprocessors=5,  # as in week 25's scan: 40 blocks of 256 threads are resident at once
    bench={"n": 1 << 28, "share": 0.5, "order": "mixed"},  # 1.5 GiB
    sweep=tuple(
        {"n": 1 << 28, "share": share, "order": order}
        for share, order in ((0.01, "mixed"), (0.1, "mixed"), (0.9, "mixed"), (0.5, "runs"))
    ),
    baseline=three_kernels,
    # On an H200, the answer has 1.07 (1.056 to 1.076), and the expert kernel 1.15 (1.144 to 1.155).
    min_speedup=0.95,
    # Half of a warp's elements are 64 bytes that start anywhere, so they touch 2.9 sectors instead of 2, which makes
    # 1.15 times the compulsory bytes in all. Status words add up to 0.05 with a tile per warp. A second read of x makes
    # 1.8.
    traffic=Traffic(bytes=1.4),
    deterministic=True,
)
