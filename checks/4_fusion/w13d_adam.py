"""AdamW: update a whole model in one launch.

Week 13. Parameters, gradients and two moments of every tensor of a model, updated in place. What is saved is neither
bytes nor arithmetic: it is launches, and the ends of kernels that are too small to fill the GPU.
"""

from kernelpath.course.problems import adam
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="adamw",
    problem=adam.PROBLEM,
    aligned=True,  # the case says where tensors begin, since their number differs from case to case
    any_size=False,
    bench=adam.case("gpt2", 148, step=100),  # 3.5 GB
    sweep=(
        adam.case("resnet50", 161, step=100),
        adam.case("llama_block", 9, step=100),
        adam.case("adapters", 256, step=100),
        adam.case("vectors", 512, step=100),
        adam.case("gpt2", 148, step=100, dtype="bfloat16"),
    ),
    baseline=adam.one_by_one,
    min_speedup=2.3,  # the reference reaches 3.58 on an H200, a kernel without alignment 3.1
    launches=1,
    traffic=Traffic(bytes=1.6, edges=None),
)
