"""GEMM whose tiles do not fill the last wave: out = a @ b.T in bfloat16, for matrices that are stored along k."""

from __future__ import annotations

from dataclasses import replace

from kernelpath.course.problems import few_rows, matmul_k_major

PROBLEM = replace(
    matmul_k_major.PROBLEM,
    # On 5 SMs: a single k-tile, one tile for all SMs, tiles with and without parts, and 3 to 12 tiles, which 5 does not
    # divide. In the largest case, the rows fit in one tile of any height, so each element of b is read once.
    cases=(
        {"m": 1, "n": 8, "k": 8},
        {"m": 16, "n": 24, "k": 2056},
        {"m": 130, "n": 65, "k": 328},
        {"m": 200, "n": 264, "k": 136},
        {"m": 64, "n": 768, "k": 2048},
    ),
    unordered=few_rows.unordered,
    limits=({"m": 1_037, "n": 8, "k": 8}, {"m": 8, "n": 1_032, "k": 8}, {"m": 8, "n": 8, "k": 4_104}),
    gpu_limits=({"m": 65_537, "n": 8, "k": 8},),
)
