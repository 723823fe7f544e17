"""Matrix product with an epilogue and two outputs: aux = a @ b + bias, out = gelu(aux) * scale[:, None] + residual.

Training asks for aux, as the backward pass of GELU needs its argument. Both are rounded once, from float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import gelu

from kernelpath.course.problems import gelu as gelu_alone
from kernelpath.course.problems import gemm_epilogue, matmul_half

SLICE = 16  # values along k that one wgmma sums


def case(m: int, n: int, k: int) -> dict[str, int | str]:
    return {"m": m, "n": n, "k": k, "dtype": "bfloat16"}


def extreme(
    rng: torch.Generator,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor,
    scale: torch.Tensor,
    residual: torch.Tensor,
) -> None:
    """Set infinities where k is not a multiple of SLICE, which multiply the padding; else cancelling values."""
    (gemm_epilogue.cancelling if a.shape[1] % SLICE == 0 else gemm_epilogue.infinite)(rng, a, b, bias)


def of_product(product: Callable[..., Any], activation: Callable[..., Any] = gelu) -> Any:
    """Return the reference, or a fault, given the product and the activation."""

    def compute(
        a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        aux = product(a, b) + bias.double()
        return activation(aux, approximate="tanh") * scale.double()[:, None] + residual.double(), aux

    return compute


PROBLEM = replace(
    gemm_epilogue.PROBLEM,
    # Tiles are 64 to 256 wide and 64 deep, in rings of 2 to 6 stages. TMA takes rows of 16 bytes.
    cases=(
        case(1, 8, 8),
        case(65, 72, 456),
        case(300, 392, 200),  # three or four tiles for each of four blocks
    ),
    vary=("m",),
    far=(),
    limits=(case(1_037, 8, 8), case(8, 1_032, 8), case(8, 8, 2_056)),
    gpu_limits=(case(65_537, 8, 8),),
    outputs=("out", "aux"),
    reference=of_product(matmul_half.reference),
    extreme=extreme,
    faults={
        **{name: of_product(fault) for name, fault in matmul_half.PROBLEM.faults.items()},
        "tanh as a quotient of exponentials": of_product(matmul_half.reference, gelu_alone.quotient_of_exponentials),
    },
    compulsory_bytes=lambda m, n, k, dtype: 2 * (m * k + k * n + 3 * m * n + n) + 4 * m,
)
