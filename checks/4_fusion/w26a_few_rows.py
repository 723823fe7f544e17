"""Few rows: a GEMM with too few rows to fill a tile, split along k.

Week 26. out = x @ w.T for 1 to 16 rows in bfloat16. w is read once, by enough programs for all 132 SMs, and partial
sums are added in a fixed order.
"""

from kernelpath.course.problems import few_rows, matmul_k_major
from kernelpath.course.spec import Exercise, Traffic

# The second product of the feed-forward layer of Llama 3 8B: 117 MB, twice the L2 of an H200.
LLAMA = {"n": 4096, "k": 14_336}

EXERCISE = Exercise(
    entry="few_rows",
    problem=few_rows.PROBLEM,
    aligned=True,
    requires=(8, 0),  # bfloat16 on tensor cores
    bench={"m": 4, **LLAMA},
    sweep=(
        *({"m": rows, **LLAMA} for rows in (1, 2, 8, 16)),
        *({"m": 1, "n": n, "k": k} for n, k in ((6144, 4096), (4096, 4096), (28_672, 4096), (128_256, 4096))),
        {"m": 16, "n": 1024, "k": 65_536},
    ),
    baseline=matmul_k_major.library,
    min_speedup=0.93,  # of cuBLAS on an H200: the reference 1.02, without programmatic dependent launch 0.95 to 0.99
    tensor_cores=True,
    deterministic=True,
    measures_reads=True,  # graders/few_rows.py limits the share of w that one block reads
    # At 40 x 16384, partial sums of 16 rows add 0.3 times the bytes with 128 splits, and x is read once for each tile.
    traffic=Traffic(bytes=2.0, edges=None),
    workspace=0.5,
)
