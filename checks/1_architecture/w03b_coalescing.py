"""Coalescing: a row gather, from 32 sectors per request to 4.

Week 3. out[r, :] = table[index[r], :] for a contiguous float32 table and int64 indices: what an embedding does.
"""

import torch

from kernelpath.course.problems import gather_rows
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

STRIDED = cuda.kernel("w03b_coalescing.cu", "gather_rows")


def strided(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """One thread per row: the lanes of a warp are a row apart."""
    rows, columns = index.numel(), table.shape[1]
    out = table.new_empty(rows, columns)
    STRIDED[(rows + 255) // 256, 256](table, index, out, rows, columns)
    return out


EXERCISE = Exercise(
    entry="gather_rows",
    problem=gather_rows.PROBLEM,
    bench={"table": 1 << 18, "rows": 1 << 17, "columns": 512},  # 512 MiB in and out, 9 times the L2 of an H200
    baseline=strided,
    min_speedup=5.0,  # 11.6 on an H200, whose L1 catches most of the loads that the baseline scatters
    traffic=Traffic(sectors=1.1, bytes=1.2),
)
