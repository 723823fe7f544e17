"""Attention of one new token per sequence over keys and values in pages.

q is (batch, heads, head); k_pages and v_pages are (pages, page, kv_heads, head); all contiguous bfloat16. block_table,
int32, (batch, most), has the pages of each sequence in their order, and lengths, int32, (batch,), its number of tokens:
token t of sequence i is row t % page of page block_table[i, t // page]. Entries of the block_table past the last page
of a sequence, rows past its last token, and pages of no sequence may hold anything. Query head h reads key head h //
(heads // kv_heads).
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems.sequences import parsed, shuffled

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

_NO_PAGE = (-1, 1 << 30, -(1 << 30))


def inputs(rng: torch.Generator, lengths: str, page: int, heads: int, kv_heads: int, head: int) -> Inputs:
    """Scores of mean 0 and deviation 1.4, in pages in a random order.

    One page in 16 belongs to no sequence. It holds NaN, as do the rows after the last token of a sequence. Table
    entries after its last page are no page at all; the block_table is a little wider than the longest sequence.
    """
    tokens = shuffled(rng, lengths)
    counts = (tokens.long() + page - 1) // page
    used, batch = int(counts.sum()), len(tokens)
    pages = used + 1 + used // 16
    shape = (pages, page, kv_heads, head)
    q = draw.normal(rng, batch, heads, head, dtype="bfloat16", large=0)
    k = draw.normal(rng, *shape, dtype="bfloat16", large=0).sub_(1)
    v = draw.normal(rng, *shape, dtype="bfloat16")
    place = torch.arange(-(-int(counts.max()) * 9 // 8), device=rng.device)
    mine = place < counts[:, None]
    block_table = torch.tensor(_NO_PAGE, dtype=torch.int32, device=rng.device)[place % len(_NO_PAGE)].repeat(batch, 1)
    order = torch.randperm(pages, generator=rng, device=rng.device)
    block_table[mine] = order[:used].int()
    rest = (tokens - 1) % page + 1
    last = block_table[torch.arange(batch, device=rng.device), counts - 1].long()
    for x in (k, v):
        if not x.is_meta:
            x[order[used:]] = torch.nan
            for row in range(1, page):
                x[last[rest <= row], row] = torch.nan
    return q, k, v, block_table, tokens


def _attention(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:  # fmt: skip
    """The formula, sequence by sequence, over its pages gathered, computed in dtype."""
    out = torch.empty_like(q, dtype=dtype)
    page, kv_heads, head = k_pages.shape[1:]
    for i, length in enumerate(lengths.tolist()):
        pages = block_table[i, : -(-length // page)]
        key, value = (x[pages].flatten(0, 1)[:length].transpose(0, 1).to(dtype) for x in (k_pages, v_pages))
        query = q[i].view(kv_heads, -1, head).to(dtype)
        weights = torch.softmax(query @ key.mT * head**-0.5, -1)
        out[i] = (weights @ value).view(-1, head)
    return out


def reference(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """In float64."""
    return _attention(q, k_pages, v_pages, block_table, lengths, torch.float64)


def eager(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """As operators: gather the pages of a sequence, multiply, softmax, multiply; one sequence after another."""
    return _attention(q, k_pages, v_pages, block_table, lengths, q.dtype)


def extreme(
    rng: torch.Generator,
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    """In turn, a key head whose scores rise from -100 to 100 halfway, one with a token that decides, one far below 0.

    The first column of q holds 8, so that of k decides on what is added to every score of a key.
    """
    page, kv_heads, head = k_pages.shape[1:]
    q[..., 0] = 8
    for i, length in enumerate(lengths.tolist()):
        token = torch.arange(length, device=q.device)
        pages = block_table[i, token // page].long()
        added = torch.stack(
            [
                torch.where(token < length // 2, -100.0, 100.0),
                torch.where(token == length // 3, 400.0, 0.0),
                torch.full_like(token, -1000.0, dtype=torch.float32),
            ]
        )
        kinds = (torch.arange(kv_heads, device=q.device) + i) % 3
        k_pages[pages, token % page, :, 0] = (added[kinds].T * head**0.5 / 8).to(k_pages.dtype)


def _without(given: tuple[torch.Tensor, ...], lost: torch.Tensor) -> torch.Tensor:
    """The truth, with NaN where `lost`, (batch, heads), says so."""
    return reference(*given).masked_fill(lost[..., None], torch.nan)


def _largest(*given: torch.Tensor) -> torch.Tensor:
    """The largest score of each head, (batch, heads)."""
    q, k_pages, _, block_table, lengths = given
    page, kv_heads, head = k_pages.shape[1:]
    found = []
    for i, length in enumerate(lengths.tolist()):
        key = k_pages[block_table[i, : -(-length // page)]].flatten(0, 1)[:length].transpose(0, 1).double()
        scores = q[i].view(kv_heads, -1, head).double() @ key.mT * head**-0.5
        found.append(scores.amax(-1).flatten())
    return torch.stack(found)


def maximum_from_zero(*given: torch.Tensor) -> torch.Tensor:
    """The maximum is looked for from 0 on: far below it, every exponential is 0 in float32."""
    return _without(given, _largest(*given) < -100)


def no_maximum(*given: torch.Tensor) -> torch.Tensor:
    """Exponentials of the scores as they are, which overflow float32."""
    return _without(given, _largest(*given) > 88)


def compulsory_bytes(lengths: str, page: int, heads: int, kv_heads: int, head: int) -> int:
    """Keys and values of every token, the entries of the block_table, q and out."""
    tokens = parsed(lengths)
    pages = sum(-(-length // page) for length in tokens)
    return 4 * kv_heads * head * sum(tokens) + 4 * (pages + len(tokens)) + 4 * heads * head * len(tokens)


def flops(lengths: str, page: int, heads: int, kv_heads: int, head: int) -> int:
    """Two products of each query head with every token."""
    return 4 * heads * head * sum(parsed(lengths))


def case(lengths: str, page: int, head: int, *, heads: int = 1, kv_heads: int = 1) -> dict[str, str | int]:
    """A case by its numbers."""
    return {"lengths": lengths, "page": page, "heads": heads, "kv_heads": kv_heads, "head": head}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case("1", 16, 64),
        case("1+15+16+17+31", 16, 64, heads=3, kv_heads=3),
        case("63+64+65+128", 64, 64, heads=8, kv_heads=2),
        case("3x7+2500", 16, 64, heads=12, kv_heads=3),
        case("2x1000", 64, 64, heads=4, kv_heads=1),
        case("33+2", 16, 32),
    ),
    far=(case("2050x4100", 64, 64, heads=8, kv_heads=8),),
    reference=reference,
    tolerance={
        # As for attention: out is rounded to bfloat16, and each weight for the tensor cores.
        "bfloat16": Tolerance(rtol=1e-2, atol=3e-2),
    },
    extreme=extreme,
    faults={"a maximum that begins at 0": maximum_from_zero, "no maximum subtracted": no_maximum},
    gpu_limits=(
        case("100000+3", 16, 128, heads=8, kv_heads=8),
        case("3000x2", 16, 128, heads=16, kv_heads=1),
        case("70+300", 256, 128, heads=20),
        case("70+3", 1, 256, heads=2),
    ),
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
