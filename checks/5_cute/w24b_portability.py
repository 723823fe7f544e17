"""Portability: softmax in Pallas, for TPUs and GPUs of two vendors.

Week 24. Softmax of each row of a float32 or bfloat16 matrix as a kernel of Pallas. It is lowered for a TPU, for an
NVIDIA GPU and for an AMD GPU, and runs in JAX's interpreter.
"""

from dataclasses import replace

from kernelpath.course.problems import softmax
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(
    entry="softmax",
    kind="python",
    problem=replace(softmax.PROBLEM, far=(), gpu_limits=()),
    cases=(
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 33, "columns": 31, "dtype": "float32"},
        {"rows": 16, "columns": 128, "dtype": "bfloat16"},
        {"rows": 21, "columns": 257, "dtype": "bfloat16"},
        {"rows": 40, "columns": 1000, "dtype": "float32"},
    ),
    limits=({"rows": 3, "columns": 4096, "dtype": "float32"},),
)
