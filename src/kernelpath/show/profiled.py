"""Hold what profilers measured on an H200, which no notebook measures again: the cells that use it ask for it first."""

from __future__ import annotations

# The GB that PyTorch's operators request of L2, by ncu.
NCU_GIGABYTES = {
    "add elements=134217728 bfloat16": 0.8053,
    "gelu elements=134217728 bfloat16": 0.5369,
    "softmax rows=16384 columns=8192 bfloat16": 0.5369,
    "layernorm rows=16384 columns=8192 bfloat16": 0.7988,
    "cross_entropy rows=8192 columns=32000 float32": 4.130,
    "transpose rows=8192 columns=8192 float32": 2.2135,
    "embedding tokens=65536 vocabulary=131072 width=4096 distinct=1000 bfloat16": 1.0629,
    "attention_decode batch=64 heads=32 kv_heads=8 tokens=8192 head_dim=128 bfloat16": 2.149,
    "attention_prefill batch=2 heads=32 kv_heads=8 tokens=8192 head_dim=128 bfloat16": 8.877,
    "matmul m=8192 n=8192 k=8192 bfloat16": 6.9645,
}

# The columns of NCU_SPEED_OF_LIGHT.
NCU_COLUMNS = ("compute %", "memory %", "DRAM %", "L1 %", "occupancy %", "issue slots %", "long scoreboard")

# The kernels of week 5, by ncu.
NCU_SPEED_OF_LIGHT = {
    "a thread per row, 256 per block": (1.4, 24.0, 4.0, 99.2, 12.5, 5.7, 32.6),
    "a thread per row, 64 per block": (2.8, 49.2, 8.1, 51.6, 3.1, 5.9, 14.5),
    "the same, stored by columns": (3.0, 8.1, 8.1, 1.6, 3.1, 6.4, 13.0),
    "a block per row, two passes": (33.7, 48.6, 48.6, 10.2, 96.9, 34.2, 39.5),
    "one pass": (51.5, 44.5, 44.5, 10.1, 96.0, 52.2, 23.5),
    "one pass, 4 loads": (82.6, 66.4, 66.4, 16.1, 94.7, 84.1, 6.9),
    "one pass, 16 bytes": (70.7, 82.5, 82.5, 20.0, 93.9, 73.4, 12.7),
    "one pass, 4 x 16 bytes": (60.7, 91.4, 91.4, 23.1, 98.0, 62.2, 18.2),
    "bfloat16 product, cuBLAS": (90.6, 70.1, 16.5, 73.7, 14.6, 12.0, 3.5),
}

# Medians in µs from a cold L2, and the bytes of the stack frame as ptxas reports them.
PRINTF_TIMES = {
    "no printf": (207.4, 0),
    "one thread prints a line": (203.0, 24),
    "a thread of each block prints a line": (2171.6, 24),
    "every thread prints a line": (2919783.6, 24),
}

# The µs of an addition, of a loop, and of a GEMM of 2048 x 2048 by tiles with the line in its loop; nothing prints.
PRINTF_COSTS = {
    "without it": (207.4, 281.6, 872.5),
    "with the line": (203.0, 375.2, 935.3),
    "__trap() in place of printf": (202.2, 329.0, 902.7),
    "a store in place of printf": (None, 369.4, 951.9),
}
