"""Tiled MMA: a GEMM in C++ from a TiledMMA and TiledCopies of your own.

Week 20. out = a @ b.T for bfloat16 matrices a (m x k) and b (n x k) with m and n multiples of 128 and k of 64, in a
CUDA C++ file that includes cute/tensor.hpp.
"""

from kernelpath.course.problems import matmul_whole_tiles
from kernelpath.course.spec import Exercise, Instructions, Traffic

EXERCISE = Exercise(
    entry="matmul",
    problem=matmul_whole_tiles.PROBLEM,
    aligned=True,
    any_size=False,
    requires=(8, 0),  # cp.async and mma.m16n8k16
    tensor_cores=True,
    # At 256 x 256 x 256 tiles of 128 request 1.67 times the compulsory bytes, tiles of 64 3 times. The answer has no
    # bank conflicts; without a swizzle, ldmatrix adds 28 wavefronts to its 4, and with one for bytes 4. Of the answer's
    # bytes in shared memory cp.async writes 80%, and the rest is the tile of out.
    traffic=Traffic(sectors=1.1, bank_conflicts=0.5, bytes=3.5, asynchronous=0.6),
    instructions=Instructions(access_bytes=16),
)
