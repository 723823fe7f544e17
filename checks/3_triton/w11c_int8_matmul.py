"""int8 GEMM: int32 accumulation, with scales in the epilogue.

Week 11. out[i, j] = scale_a[i] * scale_b[j] * (sum over k of a[i, k] * b[j, k]) for contiguous int8 matrices of any
size, with exact sums, rounded once to bfloat16.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import int8_matmul
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="int8_matmul",
    problem=int8_matmul.PROBLEM,
    bench={"m": 4096, "n": 4096, "k": 4096, "dtype": "int8"},
    sweep=tuple({**case, "dtype": "int8"} for case in sweeps.products()),
    baseline=int8_matmul.dequantize_then_multiply,
    min_speedup=1.5,  # on an H200 pointers, tiles of 128 and 8 warps reach 2.3, the reference 3.4
    requires=(8, 0),  # Triton compiles no int8 product for anything older
    arch="sm_90a",
    tensor_cores=True,
    # At 256 x 256 x 512 tiles of 64 read a and b 4 times, 3 times the compulsory bytes; matrices that are dequantized
    # in memory first are written and read again at twice the size.
    traffic=Traffic(sectors=2.0, bytes=3.5, edges=None),
)
