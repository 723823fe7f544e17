"""Product of quantized matrices: out = (a @ b.T) * scale_a[:, None] * scale_b, int8 in, int32 sums, bfloat16 out.

b has a row for each column of out, as the weight of nn.Linear: tensor cores read bytes along k alone. At most 131,071
products of -128 by -128 fit into an int32, so k is at most that.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems import matmul

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(rng: torch.Generator, m: int, n: int, k: int, dtype: str) -> Tensors:
    """Generate bytes of every value, a not centered on 0, and a scale for each row of a and of b."""
    a = draw.integers(rng, m, k, least=-128, most=127, dtype=dtype)
    b = draw.integers(rng, n, k, least=-128, most=127, dtype=dtype)
    return a if a.is_meta else a.clamp_(min=-90), b, draw.scales(rng, m), draw.scales(rng, n)


def reference(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double().T * scale_a.double()[:, None] * scale_b.double()


def extreme(
    rng: torch.Generator, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> None:
    """Let the second half of k cancel the first half's sum, except for one product per element of out.

    All products of a half have one sign, so sums pass 2**24 where k is at least 2,700: int32 holds them exactly, and
    float32 does not. Where k is odd, the last factors are -128 and -128.
    """
    half = a.shape[1] // 2

    left, right = (draw.integers(rng, len(x), half, least=100, most=127, dtype="int8") for x in (a, b))
    a[:, :half] = left
    a[:, half : 2 * half] = left
    b[:, :half] = right
    b[:, half : 2 * half] = -right
    if half:
        places = torch.randint(half, 2 * half, (len(b), 1), generator=rng, device=b.device)
        b.scatter_add_(1, places, torch.ones_like(places, dtype=b.dtype))
    if a.shape[1] % 2:
        a[:, -1] = -128
        b[:, -1] = -128


def summed_in_float32(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """Accumulate the exact 32 products of an instruction in float32."""
    total = torch.zeros(len(a), len(b), device=a.device)
    for left, right in zip(a.split(32, dim=1), b.split(32, dim=1), strict=True):
        total = (total.double() + left.double() @ right.double().T).float()
    return total.double() * scale_a.double()[:, None] * scale_b.double()


def dequantize_then_multiply(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> torch.Tensor:
    """Multiply the scaled matrices in bfloat16 by the library's GEMM, without a kernel of one's own."""
    left = (a * scale_a[:, None]).bfloat16()
    right = (b * scale_b[:, None]).bfloat16()
    return left @ right.T


def compulsory_bytes(m: int, n: int, k: int, dtype: str) -> int:
    return m * k + n * k + 4 * (m + n) + 2 * m * n


PROBLEM = Problem(
    inputs=inputs,
    # Tiles are 32 to 256 wide and 32 to 256 deep; rows of 16 bytes, of 8, and odd ones; a k past 2**24 / 127**2.
    cases=(
        {"m": 1, "n": 1, "k": 1, "dtype": "int8"},
        {"m": 33, "n": 65, "k": 31, "dtype": "int8"},
        {"m": 64, "n": 72, "k": 48, "dtype": "int8"},
        {"m": 129, "n": 136, "k": 80, "dtype": "int8"},
        {"m": 20, "n": 28, "k": 4128, "dtype": "int8"},
        {"m": 256, "n": 256, "k": 512, "dtype": "int8"},
    ),
    vary=("m", "n", "k"),
    far=(
        {"m": (1 << 16) + 3, "n": 1 << 16, "k": 16, "dtype": "int8"},
        {"m": (1 << 16) + 3, "n": 16, "k": 1 << 16, "dtype": "int8"},
        {"m": 16, "n": (1 << 16) + 3, "k": 1 << 16, "dtype": "int8"},
    ),
    reference=reference,
    # The sum is exact. Half a unit in the last place of a bfloat16 is at most 2^-8, and three roundings of a float32,
    # of the sum and of two products, are 3 * 2^-24. A sum that is rounded to bfloat16 before it is scaled is off by
    # twice 2^-8.
    tolerance={"bfloat16": Tolerance(rtol=1.01 * 2**-8, atol=1e-6)},
    extreme=extreme,
    faults={"sums in float32": summed_in_float32},
    limits=({"m": 2_064, "n": 24, "k": 16, "dtype": "int8"}, {"m": 16, "n": 2_056, "k": 16, "dtype": "int8"}),
    must_reach=matmul.BEYOND_A_TILE,
    gpu_limits=({"m": 65_537, "n": 1, "k": 1, "dtype": "int8"},),
    compulsory_bytes=compulsory_bytes,
    flops=lambda m, n, k, dtype: 2 * m * n * k,
)
