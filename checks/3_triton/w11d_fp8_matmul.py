"""fp8 GEMM: two-level accumulation and block scales.

Week 11. out = a @ b.T for contiguous float8 e4m3 matrices of any size, with a scale for each tensor, or for blocks of
1 x 128 values of a and 128 x 128 of b, with float32 sums, rounded once to bfloat16.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import fp8_matmul
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="fp8_matmul",
    problem=fp8_matmul.PROBLEM,
    bench=fp8_matmul.case(4096, 4096, 4096, "block"),
    sweep=tuple(fp8_matmul.case(**sizes, scales="block") for sizes in sweeps.products())
    + tuple(fp8_matmul.case(size, size, size, "tensor") for size in (4096, 8192)),
    baseline=fp8_matmul.dequantize_then_multiply,
    min_speedup=1.2,  # on an H200 the reference kernel reaches 2.5
    requires=(8, 9),  # the first with float8
    arch="sm_90a",
    tensor_cores=True,
    # At 256 x 256 x 512 tiles of 64 read a and b 4 times, 3 times the compulsory bytes; matrices that are dequantized
    # in memory first are written and read again at twice the size.
    traffic=Traffic(sectors=2.0, bytes=3.5, edges=None),
    # Two accumulators of 128 x 128 are live at once. Of the variants that fit in registers, tiles of 64 x 128 are 21%
    # slower at 4096 and 8192 on an H200, and 8 warps 3% and 11% slower.
    spills="72 bytes with Triton 3.6, 88 with 3.9: both variants without a stack frame are slower",
)
