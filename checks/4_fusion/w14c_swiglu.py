"""SwiGLU: two GEMMs and their gate in one kernel, and its backward.

Week 14. h = silu(gate) * up, where gate and up are the halves of x @ w.T, in bfloat16 or float16 with float32 sums;
with the gradient of h also those of x and w.
"""

import torch

from kernelpath.course.problems import swiglu
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda


def kernels(name: str) -> dict[torch.dtype, cuda.Kernel]:
    types = ((torch.bfloat16, "__nv_bfloat16"), (torch.float16, "__half"))
    return {dtype: cuda.kernel("w14c_swiglu.cu", f"{name}<{of}>") for dtype, of in types}


GATED, GRADIENTS = kernels("gated"), kernels("gradients")


def two_steps(
    x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """cuBLAS for all products, and one kernel at the speed of memory for each gate: what torch.compile makes of it."""
    rows, columns = len(x), len(w) // 2
    both, h = x @ w.T, x.new_empty(rows, columns)
    GATED[x.dtype][rows, 256](both, h, columns)
    if dh is None:
        return h
    back = torch.empty_like(both)
    GRADIENTS[x.dtype][rows, 256](both, dh, back, columns)
    return h, back @ w, back.T @ x


# The feed-forward layer of Llama 3 8B.
LLAMA = {"n": 14_336, "k": 4096, "dtype": "bfloat16"}

EXERCISE = Exercise(
    entry="swiglu",
    problem=swiglu.PROBLEM,
    aligned=True,
    any_size=False,
    bench={**LLAMA, "m": 8192, "backward": False},
    sweep=(
        *({**LLAMA, "m": rows, "backward": False} for rows in (16, 128, 1000, 2048, 16_384)),
        *({**LLAMA, "m": rows, "backward": True} for rows in (2048, 8192)),
        swiglu.case(4096, 4096, 4096),
        swiglu.case(8192, 11_008, 2048),
    ),
    baseline=two_steps,
    min_speedup=0.65,  # on an H200 the reference reaches 1.06, a dot for each product 0.70
    arch="sm_90a",
    tensor_cores=True,
    # At 328 x 272 x 32 tiles of 64 ask for 2.2 times the compulsory bytes; gate and up in memory add 3 times as much as
    # h has, once to be written and once to be read.
    traffic=Traffic(bytes=3.5, edges=None),
    check=swiglu.rounded_once,
)
