"""Gradient of an embedding: row v of the table is the sum of the rows of dy whose token is v, rounded once.

dy is (tokens, n), and ids has the token of each row, or -1 for a row that adds nothing. order has the numbers of all
other rows, sorted by token as a stable sort does it, and then -1.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, Case, Problem, Tolerance

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]


def inputs(rng: torch.Generator, tokens: int, vocabulary: int, n: int, repeats: str, dtype: str) -> Inputs:
    """Generate rows of both signs, and tokens of a text. From 4 rows on, one in eight adds nothing.

    Args:
        repeats: "few": all tokens are equally likely. "text": token v has a probability of about 1 / (v + 1), as words
            of a text do. "half": as in a text, but half of the rows have the last token. "one": all rows have it.
    """
    dy = draw.normal(rng, tokens, n, dtype=dtype, large=0, mean=0.25)
    if repeats == "few":
        ids = torch.randint(vocabulary, (tokens,), generator=rng, device=rng.device)
    else:
        ids = _tokens_of_text(rng, tokens, vocabulary)
    if repeats in ("half", "one"):
        has_last = torch.rand(tokens, generator=rng, device=rng.device) < (0.5 if repeats == "half" else 1.0)
        ids[has_last] = vocabulary - 1
    ids[torch.randperm(tokens, generator=rng, device=rng.device)[: (tokens + 4) // 8]] = -1
    return dy, ids.int(), sort_rows(ids).int(), vocabulary


def _tokens_of_text(rng: torch.Generator, tokens: int, vocabulary: int) -> torch.Tensor:
    """Sample tokens with probabilities in proportion to 1 / (token + 1)."""
    # The sums are computed on the CPU, since the bits of a floating-point cumsum differ from call to call on a GPU, and
    # so do a few samples of torch.multinomial, which uses it. The grader generates the inputs again to compare them.
    ends = (1.0 / torch.arange(1, vocabulary + 1, dtype=torch.float64)).cumsum(0).to(rng.device)
    uniform = torch.rand(tokens, dtype=torch.float64, generator=rng, device=rng.device)
    return torch.searchsorted(ends, uniform * ends[-1], right=True).clamp(max=vocabulary - 1)


def sort_rows(ids: torch.Tensor) -> torch.Tensor:
    """Return the rows that add something, sorted by token, and -1 for each of the others."""
    order = ids.sort(stable=True).indices
    skipped = int((ids < 0).sum())
    return torch.cat([order[skipped:], order.new_full((skipped,), -1)])


def _add_rows(dy: torch.Tensor, ids: torch.Tensor, vocabulary: int) -> torch.Tensor:
    counted = ids >= 0
    return dy.new_zeros(vocabulary, dy.shape[1]).index_add_(0, ids[counted].long(), dy[counted])


def reference(dy: torch.Tensor, ids: torch.Tensor, order: torch.Tensor, vocabulary: int) -> torch.Tensor:
    return _add_rows(dy.double(), ids, vocabulary)


def magnitudes(dy: torch.Tensor, ids: torch.Tensor, order: torch.Tensor, vocabulary: int) -> torch.Tensor:
    return _add_rows(dy.double().abs(), ids, vocabulary)


def library(dy: torch.Tensor, ids: torch.Tensor, order: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Call PyTorch's operator, which sorts the tokens by itself and skips those of its padding_idx."""
    tokens = ids.where(ids >= 0, vocabulary)
    table: torch.Tensor = torch.ops.aten.embedding_dense_backward(dy, tokens, vocabulary + 1, vocabulary, False)
    return table[:vocabulary]


def extreme(rng: torch.Generator, dy: torch.Tensor, ids: torch.Tensor, order: torch.Tensor, vocabulary: int) -> None:
    """Set NaN in the rows that add nothing, an infinity in one row of the middle token, and terms that cancel.

    Of the middle token, the terms of every second column cancel in pairs, but for one.
    """
    counted = order[order >= 0].long()
    middle = ids[counted[len(counted) // 2]]
    same = counted[ids[counted] == middle]
    half = len(same) // 2
    # The second half of the token's rows is the negative of the first half, in every second column.
    dy[same[half : 2 * half], ::2] = -dy[same[:half], ::2]
    dy[same[-1], 1::3] = float("inf")
    dy[ids < 0] = torch.nan


def unordered(rng: torch.Generator, dy: torch.Tensor, ids: torch.Tensor, order: torch.Tensor, vocabulary: int) -> None:
    """Let magnitudes differ by up to 2^24 from row to row, with either sign."""
    power = torch.randint(-12, 13, (len(dy), 1), generator=rng, device=dy.device).float()
    dy.copy_(torch.randn(dy.shape, generator=rng, device=dy.device) * 2.0**power)


def multiplied_by_ones(dy: torch.Tensor, ids: torch.Tensor, order: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Multiply by a matrix of ones and zeros, which makes NaN of an infinity in a row of another token."""
    chosen = ids.long()[None, :] == torch.arange(vocabulary, device=dy.device)[:, None]
    return chosen.double() @ dy.double()


def compulsory_bytes(tokens: int, vocabulary: int, n: int, repeats: str, dtype: str) -> int:
    return BYTES[dtype] * n * (tokens + vocabulary) + 8 * tokens


def case(tokens: int, vocabulary: int, n: int, repeats: str) -> Case:
    return {"tokens": tokens, "vocabulary": vocabulary, "n": n, "repeats": repeats, "dtype": "bfloat16"}


PROBLEM = Problem(
    inputs=inputs,
    # Segments end before, at, and after the end of a piece of rows, whatever its length, and cover several pieces.
    cases=(
        case(1, 1, 1, "few"),
        case(7, 40, 33, "few"),
        case(64, 3, 64, "text"),
        case(193, 17, 130, "one"),
        case(500, 300, 72, "text"),
        case(2640, 150, 256, "half"),
    ),
    vary=("tokens", "vocabulary", "n"),
    # The block at three quarters of the grid, which the sample has, is in the middle of a token's rows: about row
    # 1,800,000 of 2^22, whose offset is negative in 32 bits. With a float32 sum of each 64 rows at each of their ends,
    # the workspace has simt.FAR bytes, so the host needn't fill it.
    far=(case((1 << 22) + 3, 39, 1 << 12, "few"), case(7, (1 << 20) + 3, 1 << 12, "few")),
    reference=reference,
    # Thousands of terms are added in float32: 2^-24 of all magnitudes for each addition, at most 2^-14 for the longest
    # chain, and half a unit in the last place, 2^-8 of a bfloat16 and 2^-11 of a float16. Sums in bfloat16 stop growing
    # at 256 terms.
    tolerance={
        "bfloat16": Tolerance(rtol=1.01 * 2**-8, atol=0.0, mtol=2**-14),
        "float16": Tolerance(rtol=1.01 * 2**-11, atol=0.0, mtol=2**-14),
    },
    magnitudes=magnitudes,
    extreme=extreme,
    unordered=unordered,
    faults={"a matrix of ones and zeros": multiplied_by_ones},
    limits=(case(65_537, 2, 1, "one"), case(2, 65_537, 1, "one"), case(3, 2, 65_537, "one")),
    compulsory_bytes=compulsory_bytes,
    flops=lambda tokens, vocabulary, n, repeats, dtype: tokens * n,
)
