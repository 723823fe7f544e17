"""SGEMM with register tiles: block, warp, and thread.

Week 8. out = a @ b for contiguous float32 matrices a (m x k) and b (k x n) of any size, in strict float32.
"""

import torch

from kernelpath.course import sweeps
from kernelpath.course.problems import matmul
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

TILED = cuda.kernel("w08a_sgemm_registers.cu", "matmul")


def one_output_per_thread(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A tile of 32 in shared memory, as matmul_tiled begins."""
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    TILED[((n + 31) // 32, (m + 31) // 32), (32, 32)](a, b, out, m, n, k)
    return out


EXERCISE = Exercise(
    entry="matmul",
    problem=matmul.PROBLEM,
    # Tiles of out are 64 or 128 wide, those of a and b 8 to 32 deep. Limits hold at 256 x 256 x 128, where tiles fit.
    cases=(
        {"m": 1, "n": 1, "k": 1},
        {"m": 127, "n": 65, "k": 17},
        {"m": 130, "n": 70, "k": 37},
        {"m": 129, "n": 132, "k": 36},
        {"m": 64, "n": 260, "k": 8},
        {"m": 256, "n": 256, "k": 128},
    ),
    bench={"m": 4096, "n": 4096, "k": 4096},
    sweep=sweeps.products(),
    baseline=one_output_per_thread,
    min_speedup=3.0,  # on an H200 8 x 8 outputs with 16-byte reads reach 3.2 to 3.7, the reference kernel 5.4
    # At 256 x 256 x 128 tiles of 64 ask for 2.5 times the compulsory bytes, tiles of 32 for 4.5 times. Shared memory
    # takes 8.3 wavefronts per cycle of arithmetic for one output per thread, 2.2 for 4 x 4, and 0.56 to 0.81 for 8 x 8
    # that are read 16 bytes at a time. Read one by one they take 1.1 in PTX; ptxas may join such reads.
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=3.5, edges=0.8, shared=1.2),
)
