"""GEMM epilogue in CuTe: two outputs and ping-pong consumers.

Week 22. aux = a @ b + bias and out = gelu(aux) * scale[:, None] + residual for contiguous bfloat16 matrices whose rows
are multiples of 16 bytes, with float32 sums, each output rounded once.
"""

import torch

from kernelpath.course import sweeps
from kernelpath.course.problems import gemm_epilogue_aux
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

EPILOGUE = cuda.kernel("../4_fusion/w14b_gemm_epilogue.cu", "epilogue<__nv_bfloat16>")


def two_steps(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """cuBLAS, which adds the bias, then one kernel for all that follows: that of week 14."""
    aux = torch.addmm(bias, a, b)
    out = torch.empty_like(aux)
    EPILOGUE[len(a), 256](aux, scale, residual, out, b.shape[1])
    return out, aux


EXERCISE = Exercise(
    entry="gemm_epilogue",
    problem=gemm_epilogue_aux.PROBLEM,
    aligned=True,
    any_size=False,
    bench=gemm_epilogue_aux.case(8192, 8192, 2048),
    sweep=(
        *(gemm_epilogue_aux.case(**one) for one in sweeps.products() if one["n"] % 8 + one["k"] % 8 == 0),
        gemm_epilogue_aux.case(8192, 16_384, 4096),
    ),
    baseline=two_steps,
    min_speedup=0.85,  # on an H200 the reference reaches 1.25, two consumers on one tile 1.07
    requires=(9, 0),
    specific=True,  # wgmma
    arch="sm_90a",
    multiprocessors=4,
    tensor_cores=True,
    launches=1,
    # At 300 x 392 x 200 tiles of 128 ask for 1.8 times the compulsory bytes, sums stored from registers for 4.6 times.
    traffic=Traffic(bytes=5.0, edges=None),
)
