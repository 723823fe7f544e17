"""Product of a few 16-bit rows with weights of 4 bits: out = x @ w.T for w[i, p] = scale * (q[i, p] - zero).

x is (m, k) in float16 or bfloat16. packed, int32, (n, k / 8), has eight q from 0 to 15 in each word: q[i, 8 c + j] is
in bits 4 (j // 2) + 16 (j % 2) and the three above, so that q 2 h and 2 h + 1 are in the same place of the two halves
of a word. AWQ (arXiv 2306.00978) stores its weights in this order, along the other axis. scale and zero are
(ceil(k / 128), n), with an element for 128 values along k; scale has the dtype of x, and zero is uint8 from 0 to 15.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

GROUP = 128

# The lowest bit of each q of a word.
SHIFTS = tuple(4 * (j // 2) + 16 * (j % 2) for j in range(8))


def inputs(rng: torch.Generator, m: int, n: int, k: int, dtype: str) -> Inputs:
    """Generate uniform q, and scales that differ by up to 16 times between groups and between columns."""
    x = draw.normal(rng, m, k, dtype=dtype)
    packed = draw.integers(rng, n, k // 8, least=-(1 << 31), most=(1 << 31) - 1, dtype="int32")
    groups = (k + GROUP - 1) // GROUP
    zero = draw.integers(rng, groups, n, least=0, most=15, dtype="uint8")
    # Past 2**32 elements, zero is on torch's meta device and has no values, and neither has scale.
    scale = torch.empty_like(zero, dtype=x.dtype) if zero.is_meta else draw.scales(rng, groups, n).to(x.dtype)
    return x, packed, scale, zero


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Return q, (n, k), in int32."""
    shifts = torch.tensor(SHIFTS, dtype=torch.int32, device=packed.device)
    return (packed[:, :, None] >> shifts & 15).flatten(1)


def pack(q: torch.Tensor) -> torch.Tensor:
    """Return the words that hold q, (n, k), with values from 0 to 15."""
    shifts = torch.tensor(SHIFTS, device=q.device)
    # int64 has room for bit 31; the conversion keeps the lowest 32 bits.
    words: torch.Tensor = (q.long().unflatten(1, (-1, 8)) << shifts).sum(2)
    return words.to(torch.int32)


def expand(of_groups: torch.Tensor, k: int) -> torch.Tensor:
    """Return the element of each weight, (n, k), given those of groups, (groups, n)."""
    return of_groups.T.repeat_interleave(GROUP, 1)[:, :k]


def dequantize(packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return w, (n, k), computed and rounded in dtype."""
    k = 8 * packed.shape[1]
    return expand(scale.to(dtype), k) * (unpack(packed).to(dtype) - expand(zero.to(dtype), k))


def reference(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    return x.double() @ dequantize(packed, scale, zero, torch.float64).T


def magnitudes(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """Return the sums of |x| scale (q + zero): a kernel may subtract zero times the sum of x afterwards."""
    k = x.shape[1]
    sums = expand(scale.double(), k) * (unpack(packed).double() + expand(zero.double(), k))
    return x.double().abs() @ sums.T


def dequantize_then_multiply(
    x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor
) -> torch.Tensor:
    """Compute w in 16 bits by operators, and multiply by the library's GEMM."""
    return x @ dequantize(packed, scale, zero, x.dtype).T


def rounded_weights(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """Round each weight to the dtype of x."""
    return x.double() @ dequantize(packed, scale, zero, torch.float64).to(x.dtype).double().T


def _unlucky_scale(dtype: torch.dtype) -> float:
    """Return the scale from 1 to 2 whose products with 3 and 5 have the most different relative rounding errors."""
    steps = round(1 / torch.finfo(dtype).eps)
    scale = 1 + torch.arange(steps, dtype=torch.float64) / steps
    difference = 3 * (5 * scale).to(dtype).double() - 5 * (3 * scale).to(dtype).double()
    return float(scale[(difference / scale).abs().argmax()])


def extreme(
    rng: torch.Generator, x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor
) -> None:
    """Let products of 3 * 5 and 5 * -3 cancel in pairs, except in the last pair.

    The rounding errors of rounded weights do not cancel: each pair adds the same error to its sum.
    """
    (m, k), n = x.shape, len(packed)
    sign = torch.randint(2, (m, 1), generator=rng, device=x.device) * 2.0 - 1
    x[:, 0::2] = 3 * sign
    x[:, 1::2] = -5 * sign
    zero.copy_(torch.randint(3, (1, n), generator=rng, device=x.device).expand_as(zero))
    q = torch.tensor([5, 3], device=x.device).repeat(k // 2) + zero[:1].T.int()
    # The last pair does not cancel, so that the result differs from 0 and from column to column.
    q[:, -1] += torch.randint(1, 4, (n,), generator=rng, device=x.device)
    packed.copy_(pack(q))
    power = torch.randint(-8, -3, (1, n), generator=rng, device=x.device)
    scale.copy_((_unlucky_scale(x.dtype) * 2.0**power).expand_as(scale))


def compulsory_bytes(m: int, n: int, k: int, dtype: str) -> int:
    groups = (k + GROUP - 1) // GROUP
    return n * k // 2 + 3 * groups * n + 2 * m * (k + n)


def case(m: int, n: int, k: int, dtype: str) -> Case:
    return {"m": m, "n": n, "k": k, "dtype": dtype}


PROBLEM = Problem(
    inputs=inputs,
    # A single word, partial groups, both dtypes. There are few rows, so that weights are most of the bytes; others are
    # among the limits.
    cases=(
        case(4, 1, 8, "float16"),
        case(4, 33, 136, "bfloat16"),
        case(4, 65, 328, "float16"),
        case(4, 24, 1032, "bfloat16"),
        case(4, 320, 2048, "float16"),
    ),
    vary=("n",),
    limits=(
        case(1, 65_537, 8, "bfloat16"),
        case(17, 40, 128, "bfloat16"),
        case(64, 130, 264, "float16"),
        case(33, 1, 2056, "bfloat16"),
    ),
    must_reach={"n": 1024, "k": 2048},
    # Both packed and scale have more than 2**32 elements. At three quarters of packed, where a sample of the blocks
    # begins (device/large_offsets.py), an int32 offset is negative.
    far=(case(1, (1 << 23) + (1 << 19) + 259, 65_536, "float16"),),
    reference=reference,
    # out is rounded once: 2^-11 or 2^-8 of it. A sum in float32 of 128 products on tensor cores is off by 8 * 2^-23 of
    # their magnitudes at most, if each mma truncates; mtol leaves room for 16 times that, such as one accumulator for a
    # thousand products. Where weights are rounded to 16 bits, the extreme inputs are off by 2^-13 and 2^-10.
    tolerance={
        "float16": Tolerance(rtol=1.01 * 2**-11, atol=1e-6, mtol=2**-16),
        "bfloat16": Tolerance(rtol=1.01 * 2**-8, atol=1e-6, mtol=2**-16),
    },
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"weights rounded to 16 bits": rounded_weights},
    compulsory_bytes=compulsory_bytes,
    flops=lambda m, n, k, dtype: 2 * m * n * k,
)
