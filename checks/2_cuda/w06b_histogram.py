"""Histogram: shared-memory atomics on privatized copies.

Week 6. Counts of 256 bins for bytes and of up to 65,536 for int32 values, evenly spread, sorted, alike or Zipf's.
"""

from itertools import product

import torch

from kernelpath.course.problems import histogram
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

KERNELS = {
    dtype: cuda.kernel("w06b_histogram.cu", f"histogram<{name}>")
    for dtype, name in ((torch.uint8, "unsigned char"), (torch.int32, "int"))
}


def global_memory(x: torch.Tensor, bins: int) -> torch.Tensor:
    """Every element is an atomic on global memory, so that lanes meet wherever values are alike."""
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    KERNELS[x.dtype][min(4096, (x.numel() + 255) // 256), 256](x, counts, x.numel(), bins)
    return counts


EXERCISE = Exercise(
    entry="histogram",
    problem=histogram.PROBLEM,
    bench={"n": 1 << 28, "bins": 256, "dtype": "uint8", "distribution": "uniform"},  # 256 MiB: 5 times its L2
    sweep=tuple(
        {"n": n, "bins": bins, "dtype": dtype, "distribution": distribution}
        for (n, bins, dtype), distribution in product(
            ((1 << 28, 256, "uint8"), (1 << 26, 65_536, "int32")), histogram.DISTRIBUTIONS
        )
    ),
    baseline=global_memory,
    min_speedup=24.0,  # an H200: the reference 899, a copy per block 91, __match_any_sync for each byte 34
    # x may be read three times, for a third of the bins each time. Some 2900 blocks may add 256 counts each; a block of
    # 256 threads for every 256 elements makes 4688.
    traffic=Traffic(sectors=1.3, bytes=3.5, same_address=1.1),
)
