"""Tensor cores in CuTe: ldmatrix, mma.sync, and cp.async stages.

Week 20. out = a @ b for contiguous bfloat16 matrices a (m x k) and b (k x n) of any size, with float32 sums.
"""

import torch

from kernelpath.course import sweeps
from kernelpath.course.problems import matmul_half
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="matmul",
    problem=matmul_half.PROBLEM,
    # Every alignment of rows is a compilation of its own, and so would a second dtype be.
    cases=(
        {"m": 64, "n": 72, "k": 40, "dtype": "bfloat16"},
        {"m": 72, "n": 64, "k": 528, "dtype": "bfloat16"},
        {"m": 33, "n": 65, "k": 31, "dtype": "bfloat16"},
        {"m": 1, "n": 9, "k": 3, "dtype": "bfloat16"},
        {"m": 129, "n": 136, "k": 80, "dtype": "bfloat16"},
        {"m": 256, "n": 256, "k": 256, "dtype": "bfloat16"},
    ),
    limits=(
        {"m": 2_056, "n": 8, "k": 8, "dtype": "bfloat16"},
        {"m": 8, "n": 2_056, "k": 8, "dtype": "bfloat16"},
        {"m": 8, "n": 8, "k": 4_104, "dtype": "bfloat16"},
    ),
    aligned=True,
    bench={"m": 8192, "n": 8192, "k": 8192, "dtype": "bfloat16"},
    sweep=tuple({**case, "dtype": "bfloat16"} for case in sweeps.products()),
    baseline=torch.mm,
    # Of cuBLAS on an H200: the reference 0.64, swizzled tiles of 128 x 128 in three stages 0.56, in one stage 0.48.
    # Others' styles, with smaller tiles, are right and stay below: 0.08 to 0.34, one star.
    min_speedup=0.45,
    requires=(8, 0),  # the DSL compiles for nothing older
    tensor_cores=True,
    # At 256 x 256 x 256 tiles of 64 ask for 3 times the compulsory bytes, tiles of 32 for 5.7 times. Pairs of sums that
    # are stored from registers fill half a sector each. A cp.async of 16 bytes takes 4 wavefronts, and 8 where rows of
    # 32 elements are padded by 8; ldmatrix takes 32 where rows of 64 are neither padded nor swizzled.
    traffic=Traffic(sectors=2.0, bank_conflicts=4.0, bytes=3.5, edges=0.5),
)
