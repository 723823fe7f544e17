"""W4A16: a few rows times weights in 4 bits, dequantized in registers.

Week 28. out = x @ w.T for 1 to 64 rows in float16 or bfloat16. Eight weights share a 32-bit word, and 128 weights
along k share a scale and a zero point.
"""

from kernelpath.course.problems import w4a16
from kernelpath.course.problems.w4a16 import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="w4a16",
    problem=w4a16.PROBLEM,
    aligned=True,
    requires=(8, 0),  # bfloat16 on tensor cores
    # The first product of the feed-forward layer of Llama 3 8B, gate and up: 61 MB, more than the L2 of an H200.
    bench=case(4, 28_672, 4096, "bfloat16"),
    sweep=(
        *(case(rows, 28_672, 4096, "bfloat16") for rows in (1, 16, 64)),
        *(case(1, n, k, "float16") for n, k in ((6144, 4096), (4096, 4096), (4096, 14_336))),
        case(8, 57_344, 8192, "float16"),
    ),
    baseline=w4a16.dequantize_then_multiply,
    # On an H200 the reference reaches 44.5, tiles in shared memory without num_stages 28, cuBLAS in 16 bits 26.
    min_speedup=24.0,
    tensor_cores=True,
    # At 320 x 2048, tiles of 16 columns request x 20 times and 1.8 times the bytes in all. Writing a 16-bit copy of the
    # weights takes 3.6 times the bytes, and so does reading it. Loading a word again for each of its weights takes 2.1
    # times, and loading zeros in each thread takes 3.0 times.
    traffic=Traffic(bytes=2.0, edges=None),
    workspace=0.5,
    spills="for sm_80, tiles of 128 x 64 of 33 to 64 rows, with Triton 3.9: x is in registers, too; none for sm_90a",
)
