"""Grouped GEMM: each row, gathered by its token, is multiplied by the weight of the expert that it belongs to.

out[r] = x[source[r]] @ w[e].T for the rows r from offsets[e] to offsets[e + 1] - 1. x is (tokens, k), w is (experts, n,
k) as a weight of nn.Linear for each expert, source is int32 (rows,), offsets is int32 (experts + 1,). Experts may have
no rows; their weights then may hold anything.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem
from kernelpath.course.problems import matmul, matmul_half
from kernelpath.course.problems.sequences import parsed, shuffled

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(
    rng: torch.Generator, groups: str, tokens: int, n: int, k: int, dtype: str = "bfloat16", others: bool = False
) -> Inputs:
    """Generate weights of mean 0, and NaN for experts without rows. With `others`, the groups have other sizes.

    Every token occurs equally often among the rows, up to one.

    Args:
        groups: The number of rows of each expert, in any order, as in sequences.
    """
    counts = shuffled(rng, groups, others)
    ends = counts.cumsum(0)
    offsets = torch.cat([ends.new_zeros(1), ends]).int()
    x = draw.normal(rng, tokens, k, dtype=dtype, large=0)
    w = draw.normal(rng, len(counts), n, k, dtype=dtype, large=0, mean=0.0)
    if not w.is_meta:
        # A kernel that multiplies the weights of an expert without rows by zeros gets NaN.
        w[counts == 0] = torch.nan
    # A permutation modulo the tokens, so that every token occurs equally often, up to one.
    source = torch.randperm(sum(parsed(groups)), generator=rng, device=rng.device) % tokens
    return x, w, source.int(), offsets


def _grouped(
    x: torch.Tensor, w: torch.Tensor, source: torch.Tensor, offsets: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Multiply expert by expert, in dtype."""
    out = torch.zeros(len(source), w.shape[1], dtype=dtype, device=x.device)
    ends = offsets.tolist()
    for expert, (first, last) in enumerate(pairwise(ends)):
        if first < last:
            out[first:last] = x[source[first:last].long()].to(dtype) @ w[expert].to(dtype).T
    return out


def reference(x: torch.Tensor, w: torch.Tensor, source: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return _grouped(x, w, source, offsets, torch.float64)


def eager(x: torch.Tensor, w: torch.Tensor, source: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Compute by operators: copy the offsets to the host, then gather and multiply for each expert with rows."""
    return _grouped(x, w, source, offsets, x.dtype)


def extreme(
    rng: torch.Generator, x: torch.Tensor, w: torch.Tensor, source: torch.Tensor, offsets: torch.Tensor
) -> None:
    """Set integers whose sums cancel if 32 divides k, and infinities in the last column of x and w otherwise."""
    has_rows = offsets.diff() > 0
    k = x.shape[1]
    if k % 32:
        # k isn't a multiple of a tile's depth, and 0 * inf in the padding along k would be NaN.
        x[-1, -1] = float("inf")
        w[has_rows, -1, -1] = -float("inf")
        return
    right = torch.empty(k, len(w) * w.shape[1], dtype=w.dtype, device=w.device)
    matmul_half.cancelling(rng, x, right)
    w[has_rows] = right.T.reshape(w.shape)[has_rows]


def padded_with_products(x: torch.Tensor, w: torch.Tensor, source: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Multiply the padding of a tile by 0 instead of leaving it out."""
    return reference(x, w, source, offsets) + 0 * x.double().sum()


def summed_in_halves(x: torch.Tensor, w: torch.Tensor, source: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Round the sum of each half of k to the dtype of the inputs."""
    half = x.shape[1] // 2
    parts = (
        reference(x[:, :half], w[..., :half], source, offsets),
        reference(x[:, half:], w[..., half:], source, offsets),
    )
    return parts[0].to(x.dtype).double() + parts[1].to(x.dtype).double()


def compulsory_bytes(groups: str, tokens: int, n: int, k: int, dtype: str = "bfloat16") -> int:
    """Count the tokens that occur, the weights of experts with rows, out, and the two tables."""
    counts = parsed(groups)
    rows = sum(counts)
    used = sum(count > 0 for count in counts)
    return 2 * (min(tokens, rows) * k + used * n * k + rows * n) + 4 * (rows + len(counts) + 1)


def flops(groups: str, tokens: int, n: int, k: int, dtype: str = "bfloat16") -> int:
    return 2 * sum(parsed(groups)) * n * k


def case(groups: str, tokens: int, n: int, k: int) -> Case:
    """Return a case by its numbers, in bfloat16."""
    return {"groups": groups, "tokens": tokens, "n": n, "k": k, "dtype": "bfloat16"}


PROBLEM = Problem(
    inputs=inputs,
    # Tiles have 16 to 256 rows. An expert has no row, one, as many as a tile, one more or less, or all of them.
    cases=(
        case("1", 1, 16, 16),
        case("0+5+0+1", 3, 48, 32),
        case("1+63+64+65+0+2", 65, 80, 112),
        case("5x0+130", 130, 64, 48),
        case("127+17x1+3x0", 36, 144, 64),
        case("3x40+2x16", 152, 32, 528),
        case("14x0+6x5+70+24", 62, 256, 256),  # the weights of 14 experts are not needed, and are most of w
    ),
    vary=("tokens",),
    far=(
        case("512x1", 300, (1 << 12) + 16, 1 << 11),  # a tile for each expert, so that the sample has one past 2^31
        case("3+0+70+27", (1 << 20) + 3, 16, 1 << 12),
        case(f"{1 << 20}+7+0", 300, 1 << 12, 16),
    ),
    reference=reference,
    tolerance={dtype: matmul_half.PROBLEM.tolerance[dtype] for dtype in ("bfloat16", "float16")},
    extreme=extreme,
    redistributed=partial(inputs, others=True),
    faults={"the rest of a tile times 0": padded_with_products, "sums rounded halfway": summed_in_halves},
    limits=(
        case("3", 65_537, 16, 16),
        case("3+65537", 5, 16, 16),
        case("3+0", 5, 2_064, 16),
        case("9", 8, 16, 4_112),
        case("300x0+211x1+2", 100, 16, 16),
    ),
    must_reach={"tokens": 65_536, "n": matmul.BEYOND_A_TILE["n"], "k": matmul.BEYOND_A_TILE["k"]},
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
