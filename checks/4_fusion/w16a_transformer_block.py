"""Transformer block: forward and backward with the phase's kernels.

Week 16. Two norms, rotary angles, causal attention with grouped heads and a gated MLP, with the gradients of all.
"""

from kernelpath.course.problems import transformer_block
from kernelpath.course.problems.transformer_block import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="transformer_block",
    problem=transformer_block.PROBLEM,
    aligned=True,
    any_size=False,
    products=True,
    bench=case(4, 4096, 2048, 16, 4, 128, 5632),
    sweep=(
        case(4, 4096, 4096, 32, 8, 128, 14_336),  # a layer of Llama 3 8B
        case(2, 8192, 4096, 32, 8, 128, 14_336),
        case(16, 1024, 2048, 16, 4, 128, 5632),
        case(4, 4096, 2048, 32, 8, 64, 8192),  # of Llama 3.2 1B
    ),
    baseline=transformer_block.step,
    # On an H200 the reference reaches 1.22, torch.compile 1.24, plain kernels 0.99: the products are the same, and
    # the baseline's attention is cuDNN's.
    min_speedup=0.9,
    traffic=Traffic(edges=None),
)
