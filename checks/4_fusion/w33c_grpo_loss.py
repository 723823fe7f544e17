"""GRPO: the loss of sampled tokens and its gradient, in one pass over ragged answers.

Week 33. An element-wise loss whose divisor is a count over the whole batch: the count has to precede the pass, and
nothing else may read the log-probabilities or the gradient a second time.
"""

from kernelpath.course.problems import grpo_loss
from kernelpath.course.problems.grpo_loss import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="grpo_loss",
    problem=grpo_loss.PROBLEM,
    aligned=True,
    any_size=False,
    bench=case(128, 16, 8192),
    sweep=(case(512, 8, 2048), case(16, 16, 32_768), case(64, 64, 4096)),
    baseline=grpo_loss.eager,
    min_speedup=8.0,  # of PyTorch's operators; on an H200 the answer reaches 37
    # At 1 x 8 x 8193, the answer requests 1.18 times the compulsory bytes, blocks that start at any token 1.44 with 4
    # warps and 1.54 with 8. Gradients that are stored, loaded, divided, and stored again add 0.55, and a second pass
    # over the log-probabilities 0.8.
    traffic=Traffic(bytes=1.6, edges=None),
)
