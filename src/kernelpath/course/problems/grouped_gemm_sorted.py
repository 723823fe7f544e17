"""Grouped GEMM of sorted rows: each row of x is multiplied by the weight of the expert that it belongs to.

out[r] = x[r] @ w[e].T for the rows r from offsets[e] to offsets[e + 1] - 1: the second GEMM of a mixture of experts,
whose rows are sorted by expert already. x is (rows, k), w is (experts, n, k), and offsets is int32 (experts + 1,).
Experts may have no rows; their weights then may hold anything.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch

from kernelpath.course.problem import Case
from kernelpath.course.problems import grouped_gemm
from kernelpath.course.problems.sequences import parsed

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(rng: torch.Generator, groups: str, n: int, k: int, dtype: str = "bfloat16", others: bool = False) -> Inputs:
    """Generate the inputs of grouped_gemm with as many tokens as rows, and without the table of tokens."""
    x, w, _, offsets = grouped_gemm.inputs(rng, groups, sum(parsed(groups)), n, k, dtype, others)
    return x, w, offsets


def _in_order(x: torch.Tensor) -> torch.Tensor:
    """Return the table of tokens in which row r is token r."""
    return torch.arange(len(x), dtype=torch.int32, device=x.device)


def reference(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return grouped_gemm.reference(x, w, _in_order(x), offsets)


def eager(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Compute by operators: copy the offsets to the host, then multiply for each expert with rows."""
    out = x.new_empty(len(x), w.shape[1])
    ends = offsets.tolist()
    for expert, (first, last) in enumerate(pairwise(ends)):
        if first < last:
            torch.mm(x[first:last], w[expert].T, out=out[first:last])
    return out


def extreme(rng: torch.Generator, x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> None:
    grouped_gemm.extreme(rng, x, w, _in_order(x), offsets)


def padded_with_products(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Multiply the padding of a tile by 0 instead of leaving it out."""
    return grouped_gemm.padded_with_products(x, w, _in_order(x), offsets)


def summed_in_halves(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Round the sum of each half of k to the dtype of the inputs."""
    return grouped_gemm.summed_in_halves(x, w, _in_order(x), offsets)


def compulsory_bytes(groups: str, n: int, k: int, dtype: str = "bfloat16") -> int:
    """Count x, the weights of experts with rows, out, and the offsets."""
    counts = parsed(groups)
    used = sum(count > 0 for count in counts)
    return 2 * (sum(counts) * (n + k) + used * n * k) + 4 * (len(counts) + 1)


def flops(groups: str, n: int, k: int, dtype: str = "bfloat16") -> int:
    return 2 * sum(parsed(groups)) * n * k


def case(groups: str, n: int, k: int) -> Case:
    """Return a case by its numbers, in bfloat16."""
    return {"groups": groups, "n": n, "k": k, "dtype": "bfloat16"}


PROBLEM = replace(
    grouped_gemm.PROBLEM,
    inputs=inputs,
    # A group has no row, one, as many as a tile of 64 or 128 rows, one more or less, or all of them.
    cases=(
        case("1", 16, 16),
        case("0+5+0+1", 48, 32),
        case("1+63+64+65+0+2", 80, 112),
        case("130+0", 272, 48),
        case("127+9x1+3x0+129", 144, 64),
        case("3x40+2x16", 32, 528),  # nine steps of 64 along k: any ring of stages goes round
        case("14x0+6x5+70+24", 528, 512),  # the weights of 14 experts are not needed, and are most of w
    ),
    vary=(),
    far=(),
    reference=reference,
    extreme=extreme,
    redistributed=partial(inputs, others=True),
    faults={"the rest of a tile times 0": padded_with_products, "sums rounded halfway": summed_in_halves},
    limits=(
        case("3+65537", 16, 16),
        case("3+0", 2_064, 16),
        case("9", 16, 4_112),
        case("300x0+211x1+2", 16, 16),
    ),
    must_reach={name: grouped_gemm.PROBLEM.must_reach[name] for name in ("n", "k")},
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
