"""Persistent Hopper GEMM: warp specialization, clusters, and multicast.

Week 22. out = a @ b for bfloat16 matrices of any size that are stored by rows or by columns, with float32 sums.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import matmul_layouts
from kernelpath.course.spec import Exercise, Traffic


def case(m: int, n: int, k: int, layout: str = "nn") -> dict[str, object]:
    return {"m": m, "n": n, "k": k, "dtype": "bfloat16", "layout": layout}


EXERCISE = Exercise(
    entry="matmul",
    problem=matmul_layouts.PROBLEM,
    cases=(
        case(40, 200, 1608),  # 26 steps of 64: any ring goes round
        case(520, 776, 200),  # 24 tiles of 128 x 256
        case(136, 264, 72, "tt"),
        case(33, 65, 31),  # no row begins at a multiple of 16 bytes
        case(1, 1, 1),
    ),
    limits=(case(65_537, 8, 8), case(8, 2_056, 8), case(8, 8, 4_104)),
    aligned=True,
    any_size=False,
    bench=case(8192, 8192, 8192),
    sweep=(
        *(case(size["m"], size["n"], size["k"]) for size in sweeps.products()),
        *(case(4096, 4096, 4096, layout) for layout in matmul_layouts.LAYOUTS[1:]),
    ),
    baseline=matmul_layouts.library,
    min_speedup=0.55,  # of cuBLAS on an H200: the reference 1.02, others' styles 0.57, 0.70 and 0.74
    requires=(9, 0),
    specific=True,  # wgmma
    arch="sm_90a",
    tensor_cores=True,
    multiprocessors=4,  # so that blocks have several tiles
    traffic=Traffic(bytes=6.0, edges=None),
)
