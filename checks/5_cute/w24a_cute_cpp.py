"""CuTe in C++: MMA atoms, traits, and layouts.

Week 24. out = a @ b for bfloat16 matrices, a (m x k) by rows and b (k x n) by columns, with float32 sums, in a CUDA C++
file that includes cute/tensor.hpp.
"""

from kernelpath.course import sweeps
from kernelpath.course.problem import Case
from kernelpath.course.problems import matmul_layouts
from kernelpath.course.spec import Exercise, Traffic


def case(m: int, n: int, k: int) -> Case:
    return {"m": m, "n": n, "k": k, "dtype": "bfloat16", "layout": "nt"}


EXERCISE = Exercise(
    entry="matmul",
    problem=matmul_layouts.PROBLEM,
    # Tiles are 64 to 256 wide and 32 or 64 deep, in rings of up to 4 stages.
    cases=(case(1, 8, 8), case(33, 72, 40), case(72, 64, 528), case(129, 264, 72), case(256, 256, 256)),
    limits=(case(65_537, 8, 8), case(8, 2_056, 8), case(8, 8, 4_104)),
    aligned=True,
    bench=case(4096, 4096, 4096),
    sweep=tuple(case(**one) for one in sweeps.products() if one["n"] % 8 == 0),
    baseline=matmul_layouts.library,
    min_speedup=0.42,  # on an H200 tiles of 64 x 64 reach 0.43 of cuBLAS, of 128 x 128 0.61, the reference 0.64
    requires=(8, 0),  # cp.async and mma.m16n8k16
    tensor_cores=True,
    # At 256 x 256 x 256 tiles of 64 ask for 3 times the compulsory bytes, tiles of 32 for 5.7 times.
    traffic=Traffic(sectors=2.0, bank_conflicts=1.0, bytes=3.5, edges=0.5),
)
