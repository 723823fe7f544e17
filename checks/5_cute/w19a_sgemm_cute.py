"""SGEMM in CuTe: nested tiles as layouts, with pipelined copies.

Week 19. out = a @ b for contiguous float32 matrices a (m x k) and b (k x n) of any size, in strict float32.
"""

import torch

from kernelpath.course import sweeps
from kernelpath.course.problems import matmul
from kernelpath.course.spec import Exercise, Traffic


def strict(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The baseline: cuBLAS without TF32."""
    return a @ b


EXERCISE = Exercise(
    entry="matmul",
    problem=matmul.PROBLEM,
    # Tiles of out are 16 to 256 wide, those of a and b 8 to 32 deep. Limits hold at 256 x 256 x 256, where tiles fit;
    # a k of 256 fills every ring of stages more than once.
    cases=(
        {"m": 129, "n": 132, "k": 68},
        {"m": 1, "n": 1, "k": 1},
        {"m": 130, "n": 71, "k": 37},
        {"m": 256, "n": 256, "k": 256},
    ),
    limits=({"m": 2_056, "n": 8, "k": 8}, {"m": 8, "n": 2_056, "k": 8}, {"m": 8, "n": 8, "k": 4_104}),
    # transpose_cute asks for other addresses and for more elements; here each would be one more program to compile.
    aligned=True,
    any_size=False,
    bench={"m": 4096, "n": 4096, "k": 4096},
    sweep=sweeps.products(),
    baseline=strict,
    # On an H200, 0.99 by the reference, 0.67 in CUTLASS's form, and 0.60 with two stages by hand.
    min_speedup=0.55,
    requires=(8, 0),  # the DSL compiles for nothing older
    # As in sgemm_async.
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=5.0, edges=0.8, shared=1.2, asynchronous=0.5),
)
