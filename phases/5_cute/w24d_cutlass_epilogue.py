"""CUTLASS epilogue: a Hopper GEMM from the collective builder, with a visitor node of your own.

cutlass_epilogue(x, weight, bias) takes x (m, k), weight (n, k) and bias (n), contiguous and bfloat16, and returns

    out    max(x @ weight.T + bias, 0), bfloat16 of shape (m, n), rounded once from float32
    amax   the largest value of each row of out before it is rounded, float32 of shape (m)

n and k are multiples of 8, and m is at least 1. Every tensor has fewer than 2**31 elements.

Write the program in w24d_cutlass_epilogue.cu. Compose the kernel with CUTLASS's CollectiveBuilder and GemmUniversal,
and let an epilogue visitor tree do everything after the multiplication. CUTLASS has nodes for the accumulator, the bias
and ReLU. The node for amax is yours. nvcc compiles the host code as well, which takes up to a minute, because CUTLASS
consists of templates. The headers come with `pip install nvidia-cutlass`, nvcc with `pip install nvidia-cuda-nvcc`.

The grader checks the values of both outputs, races, and your host code's calls of the CUDA runtime. Without a GPU these
calls go to the PTX machine, which emulates TMA, mbarriers and wgmma. If there is a Hopper GPU, the program also runs on
it.
"""

import torch

from kernelpath.lanes import host_program as programs


def cutlass_epilogue(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    (m, k), n = x.shape, len(weight)
    out = x.new_empty(m, n)
    amax = x.new_empty(m, dtype=torch.float32)
    # TODO: write w24d_cutlass_epilogue.cu; nothing is missing here
    program = programs.build("w24d_cutlass_epilogue.cu")
    program.call("linear_relu_amax", x, weight, bias, out, amax, m, n, k)
    return out, amax
