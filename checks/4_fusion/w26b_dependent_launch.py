"""Dependent launch: a kernel that starts before the previous one has finished.

Week 26. y = w @ rms_norm(x) for one token, in two kernels with programmatic dependent launch. The product loads its
matrix before it waits for the norm.
"""

import torch

from kernelpath.course.problems import norm_product
from kernelpath.course.problems.add_rmsnorm import EPS
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

NORMALIZE, MULTIPLY = (cuda.kernel("w26b_dependent_launch.cu", name) for name in ("normalize", "multiply"))


def one_after_the_other(x: torch.Tensor, weight: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Launch both kernels without the attribute, so that the second starts when the first has ended."""
    n, k = w.shape
    h = torch.empty(k, dtype=torch.float32, device=x.device)
    y = torch.empty(n, dtype=x.dtype, device=x.device)
    NORMALIZE[1, 1024](x, weight, h, k, EPS)
    MULTIPLY[(n + 15) // 16, 256](w, h, y, n, k)
    return y


EXERCISE = Exercise(
    entry="dependent_launch",
    problem=norm_product.PROBLEM,
    aligned=True,
    bench={"n": 14_336, "k": 4096},  # 117 MB, twice the L2 of an H200
    sweep=({"n": 4096, "k": 4096}, {"n": 4096, "k": 14_336}, {"n": 6144, "k": 4096}, {"n": 128_256, "k": 4096}),
    baseline=one_after_the_other,
    min_speedup=0.95,  # on an H200 the reference reaches 1.02 (1.009 to 1.028): the attribute saves 1 of 42 us
    requires=(9, 0),
    arch="sm_90a",
    launches=2,  # the second launch depends on the first
    # There is no limit on bytes, because each row of w reads h again from a cache, which takes twice the row's bytes.
    traffic=Traffic(bank_conflicts=1.0),
)
