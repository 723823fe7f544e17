"""Persistent matmul: tensor descriptors and a loop over tiles.

Week 11. out = a @ b for bfloat16 or float16 matrices that are stored by rows or by columns, with float32 sums.
"""

from kernelpath.course.problems import matmul_layouts
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="matmul",
    problem=matmul_layouts.PROBLEM,
    aligned=True,
    any_size=False,
    bench={"m": 8192, "n": 8192, "k": 8192, "dtype": "bfloat16", "layout": "nn"},
    sweep=matmul_layouts.SWEEP,
    baseline=matmul_layouts.library,
    min_speedup=0.68,  # of cuBLAS on an H200: the reference 1.01, others' styles with 128 x 128 tiles 0.71 to 0.80
    requires=(9, 0),  # TMA
    arch="sm_90a",
    tensor_cores=True,
    traffic=Traffic(bytes=6.0, edges=None),
)
