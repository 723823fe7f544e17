"""Product of matrices in float8 e4m3 with scales: out[i, j] = sum over k of a[i, k] * b[j, k] * scales, in bfloat16.

Scales are given for the tensors, as (1, 1), or for blocks of 128: scale_a (ceil(k / 128), m) has one for each 128
values of a row of a, scale_b (ceil(n / 128), ceil(k / 128)) one for each 128 x 128 values of b. DeepSeek-V3 trains with
these (arXiv 2412.19437, section 3.3); that rows of a are neighbors in scale_a is what torch and DeepGEMM ask for, too.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems import matmul

BLOCK = 128
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(rng: torch.Generator, m: int, n: int, k: int, dtype: str, scales: str) -> Tensors:
    """Generate a and b, where b has mean 0, as in matmul, and neither has large values: beyond 448 e4m3 is NaN.

    Args:
        scales: "tensor" or "block".
    """
    blocks, columns = (_blocks(k), _blocks(n)) if scales == "block" else (1, 1)
    a = draw.normal(rng, m, k, dtype=dtype, large=0)
    b = draw.normal(rng, n, k, dtype=dtype, large=0, mean=0.0)
    return a, b, draw.scales(rng, blocks, m if scales == "block" else 1), draw.scales(rng, columns, blocks)


def _blocks(extent: int) -> int:
    return (extent + BLOCK - 1) // BLOCK


def dequantized(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both matrices with their scales applied to the elements."""
    k = a.shape[1]
    n = len(b)
    of_a = scale_a.T.to(dtype)
    of_b = scale_b.to(dtype)
    if scale_a.numel() > 1:
        of_a = of_a.repeat_interleave(BLOCK, 1)[:, :k]
    if scale_b.numel() > 1:
        of_b = of_b.repeat_interleave(BLOCK, 0)[:n].repeat_interleave(BLOCK, 1)[:, :k]
    return a.to(dtype) * of_a, b.to(dtype) * of_b


def reference(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    left, right = dequantized(a, b, scale_a, scale_b, torch.float64)
    return left @ right.T


def dequantize_then_multiply(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> torch.Tensor:
    """Multiply the scaled matrices in bfloat16 by the library's GEMM, without a kernel of one's own."""
    left, right = dequantized(a, b, scale_a, scale_b, torch.bfloat16)
    return left @ right.T


def extreme(
    rng: torch.Generator, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> None:
    """Let the second half of k cancel the first half's sum, except for one product per element of out.

    Factors are 3, 5 and 7, so 128 products sum to less than 2**13, which the 14 bits of a tensor core's sum hold
    exactly; the sum of a thousand does not fit. Scales are powers of two that are constant along k: nothing is rounded.
    """
    half = a.shape[1] // 2

    def odd_factors(*shape: int) -> torch.Tensor:
        return 2 * torch.randint(1, 4, shape, generator=rng, device=a.device).float() + 1

    factors = odd_factors(len(a), half)
    right = odd_factors(len(b), half)
    rest_a = odd_factors(len(a), a.shape[1] % 2)
    rest_b = odd_factors(len(b), a.shape[1] % 2)
    back = -right
    if half:
        # The one product that does not cancel is at a random place of each row.
        places = torch.randint(half, (len(b), 1), generator=rng, device=b.device)
        back.scatter_add_(1, places, torch.ones_like(places, dtype=back.dtype))
    a.copy_(torch.cat([factors, factors, rest_a], 1))
    b.copy_(torch.cat([right, back, rest_b], 1))
    scale_a.copy_(2.0 ** torch.randint(-3, 3, (1, scale_a.shape[1]), generator=rng, device=a.device).expand_as(scale_a))
    scale_b.copy_(2.0 ** torch.randint(-3, 3, (len(scale_b), 1), generator=rng, device=a.device).expand_as(scale_b))


def tensor_core_sum(
    total: torch.Tensor, left: torch.Tensor, right: torch.Tensor, least: tuple[int, int] = (-6, -6)
) -> torch.Tensor:
    """Emulate an H200's tensor cores for total + left @ right.T with 32 values along k, in float64.

    Measured, not documented: products and total are truncated to a multiple of 2**-13 of the largest power of two among
    them, where a product's power is the sum of its factors' powers; the sum is truncated to 14 bits. `least` has the
    powers of two of subnormal factors, -6 for e4m3.
    """

    def power(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x == 0, -900, torch.frexp(x)[1] - 1)

    factors = power(left).clamp(min=least[0])[:, None] + power(right).clamp(min=least[1])[None]
    products = left[:, None] * right[None]
    largest = torch.where(products == 0, -900, factors).amax(-1).maximum(power(total))
    # The weight of the last bit that is kept, relative to the largest term.
    unit = torch.ldexp(torch.ones_like(total), largest.clamp(min=-900) - 13)
    cut = (products / unit[..., None]).trunc().sum(-1) + (total / unit).trunc()
    significand, exponent = torch.frexp(cut * unit)
    return torch.ldexp((significand * 2**14).trunc() / 2**14, exponent)


def summed_at_one_level(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, promote: int = 1 << 30
) -> torch.Tensor:
    """Promote the tensor cores' sum to float32 every `promote` values along k, by default only at the end.

    Scales are per tensor, or constant along k.
    """
    total = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    for left, right in zip(a.double().split(promote, 1), b.double().split(promote, 1), strict=True):
        # A sum on the tensor cores, which begins at 0 after each promotion.
        part = torch.zeros_like(total)
        for left_part, right_part in zip(left.split(32, 1), right.split(32, 1), strict=True):
            part = tensor_core_sum(part, left_part, right_part)
        total += part
    of_columns = scale_b[:, :1].double().repeat_interleave(BLOCK, 0)[: len(b)].T if scale_b.numel() > 1 else scale_b
    return total * scale_a[:1].double().T * of_columns.double()


def compulsory_bytes(m: int, n: int, k: int, dtype: str, scales: str) -> int:
    count = _blocks(k) * (m + _blocks(n)) if scales == "block" else 2
    return m * k + n * k + 4 * count + 2 * m * n


def case(m: int, n: int, k: int, scales: str) -> dict[str, int | str]:
    return {"m": m, "n": n, "k": k, "dtype": "float8_e4m3fn", "scales": scales}


PROBLEM = Problem(
    inputs=inputs,
    # Tiles are 32 to 256 wide and 32 to 256 deep; rows of 16 bytes, of 8, and odd ones; blocks of scales that are
    # partial along k, along n, and both; one scale for all of a, or of b, which are not those of tensors; sums that 14
    # bits do not hold.
    cases=(
        case(1, 1, 1, "block"),
        case(33, 65, 31, "block"),
        case(1, 130, 70, "block"),
        case(64, 72, 48, "tensor"),
        case(44, 132, 400, "block"),
        case(129, 260, 200, "block"),
        case(20, 28, 2080, "tensor"),
        case(256, 256, 512, "block"),
    ),
    vary=("m", "n", "k"),
    far=(
        case((1 << 16) + 3, 1 << 16, 16, "block"),
        case((1 << 16) + 3, 16, 1 << 16, "tensor"),
        case(16, (1 << 16) + 3, 1 << 16, "tensor"),
    ),
    reference=reference,
    tolerance={"bfloat16": Tolerance(rtol=1.01 * 2**-8, atol=2e-3)},
    extreme=extreme,
    faults={"sums at one level": summed_at_one_level},
    limits=(case(2_064, 24, 16, "tensor"), case(16, 2_056, 16, "tensor")),
    must_reach=matmul.BEYOND_A_TILE,
    gpu_limits=(case(65_537, 1, 1, "tensor"),),
    compulsory_bytes=compulsory_bytes,
    flops=lambda m, n, k, dtype, scales: 2 * m * n * k,
)
