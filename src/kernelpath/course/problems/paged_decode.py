"""Attention of one new token per sequence over keys and values in pages.

q is (batch, heads, head); k_pages and v_pages are (pages, page, kv_heads, head); all contiguous and of one dtype.
block_table, int32, (batch, most), has the pages of each sequence in their order, and lengths, int32, (batch,), its
number of tokens: token t of sequence i is row t % page of page block_table[i, t // page]. Entries of the block_table
past the last page of a sequence, rows past its last token, and pages of no sequence may hold anything. Query head h
reads key head h // (heads // kv_heads).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem
from kernelpath.course.problems import attention
from kernelpath.course.problems.sequences import parsed, shuffled

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

# Entries that are no page. A kernel that follows one of them is out of bounds.
_NO_PAGE = (-1, 1 << 30, -(1 << 30))


def inputs(
    rng: torch.Generator,
    lengths: str,
    page: int,
    heads: int,
    kv_heads: int,
    head: int,
    dtype: str = "bfloat16",
    others: bool = False,
) -> Inputs:
    """Generate scores of mean 0 and deviation 1.4, in pages in a random order.

    One page in 16, and two more, belong to no sequence. They hold NaN, as do the rows after the last token of a
    sequence. Table entries after its last page are no page at all; the block_table is a little wider than the longest
    sequence. With `others`, the sequences have other lengths (see sequences), if their pages fit.
    """
    sequence_lengths = shuffled(rng, lengths)
    width, pages = _room(sequence_lengths, page)
    tokens = shuffled(rng, lengths, others=True) if others else sequence_lengths
    counts = (tokens.long() + page - 1) // page
    # The shapes must be those of the plain case, or a host could tell the two apart without reading the lengths.
    if int(counts.sum()) >= pages or int(counts.max()) > width:
        tokens = sequence_lengths
        counts = (sequence_lengths.long() + page - 1) // page
    used = int(counts.sum())
    batch = len(tokens)
    shape = (pages, page, kv_heads, head)
    q = draw.normal(rng, batch, heads, head, dtype=dtype, large=0)
    k = draw.normal(rng, *shape, dtype=dtype, large=0).sub_(1)
    v = draw.normal(rng, *shape, dtype=dtype)
    place = torch.arange(width, device=rng.device)
    mine = place < counts[:, None]
    block_table = torch.tensor(_NO_PAGE, dtype=torch.int32, device=rng.device)[place % len(_NO_PAGE)].repeat(batch, 1)
    order = torch.randperm(pages, generator=rng, device=rng.device)
    # In a random order: a kernel that takes pages to be neighbors reads those of another sequence.
    block_table[mine] = order[:used].int()
    tokens_on_last_page = (tokens - 1) % page + 1
    last = block_table[torch.arange(batch, device=rng.device), counts - 1].long()
    for x in (k, v):
        if not x.is_meta:
            x[order[used:]] = torch.nan
            for row in range(1, page):
                x[last[tokens_on_last_page <= row], row] = torch.nan
    return q, k, v, block_table, tokens


def _room(tokens: torch.Tensor, page: int) -> tuple[int, int]:
    """Return the columns of the block_table, and the number of pages."""
    counts = (tokens.long() + page - 1) // page
    used = int(counts.sum())
    # sequences.redistributed makes a sequence an eighth longer than the longest, at most.
    return -(-int(counts.max()) * 9 // 8), used + 2 + used // 16


# The elements of keys that are gathered at once: as float64, 2 GB.
_ELEMENTS = 1 << 28


def _by_length(
    page: int, lengths: torch.Tensor, each: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield sequences of one length, (some,), with the table column and page row of each of their tokens.

    Args:
        each: The elements of a token.
    """
    for length in sorted({*lengths.tolist()}):
        token = torch.arange(length, device=lengths.device)
        indices = (lengths == length).nonzero()[:, 0]
        for some in indices.split(max(1, _ELEMENTS // (length * each))):
            yield some, token // page, token % page


def _attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out and each head's largest score, (batch, heads), in dtype: the formula over gathered pages."""
    page, kv_heads, head = k_pages.shape[1:]
    out = torch.empty_like(q, dtype=dtype)
    largest = torch.empty(q.shape[:2], dtype=dtype, device=q.device)
    for some, column, row in _by_length(page, lengths, kv_heads * head):
        pages = block_table[some][:, column].long()
        key, value = (x[pages, row].to(dtype).transpose(1, 2) for x in (k_pages, v_pages))
        query = q[some].to(dtype).unflatten(1, (kv_heads, -1))
        scores = query @ key.mT * head**-0.5
        out[some] = (torch.softmax(scores, -1) @ value).flatten(1, 2)
        largest[some] = scores.amax(-1).flatten(1)
    return out, largest


def reference(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Compute in float64."""
    return _attention(q, k_pages, v_pages, block_table, lengths, torch.float64)[0]


def eager(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Compute by operators: gather the pages of the sequences of a length, multiply, softmax, multiply."""
    return _attention(q, k_pages, v_pages, block_table, lengths, q.dtype)[0]


def extreme(
    rng: torch.Generator,
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    """Set the key heads, in turn: scores that rise from -100 to 100 halfway, one token that decides, scores far below.

    The first column of q holds 8, so that the first column of k decides what is added to every score of a key.
    """
    page, kv_heads, head = k_pages.shape[1:]
    q[..., 0] = 8
    for some, column, row in _by_length(page, lengths, kv_heads * head):
        added = torch.zeros(3, len(column), device=q.device)
        # A maximum that rises late: everything before it has to be rescaled to nearly nothing.
        added[0, : len(column) // 2] = -100
        added[0, len(column) // 2 :] = 100
        # One token has all of the weight.
        added[1, len(column) // 3] = 400
        # Far below 0, where a maximum that begins at 0 leaves no exponential.
        added[2] = -1000
        kinds = (torch.arange(kv_heads, device=q.device) + some[:, None]) % 3
        places = block_table[some][:, column].long(), row, slice(None), 0
        # Divided by q's 8, and multiplied by what the scale 1 / sqrt(head) takes away.
        k_pages[places] = (added[kinds].transpose(1, 2) * head**0.5 / 8).to(k_pages.dtype)


def compulsory_bytes(lengths: str, page: int, heads: int, kv_heads: int, head: int, dtype: str = "bfloat16") -> int:
    """Count keys and values of every token, the entries of the block_table, q and out."""
    tokens = parsed(lengths)
    pages = sum(-(-length // page) for length in tokens)
    return 4 * kv_heads * head * sum(tokens) + 4 * (pages + len(tokens)) + 4 * heads * head * len(tokens)


def flops(lengths: str, page: int, heads: int, kv_heads: int, head: int, dtype: str = "bfloat16") -> int:
    """Count two dot products of each query head with every token."""
    return 4 * heads * head * sum(parsed(lengths))


def case(lengths: str, page: int, head: int, *, heads: int = 1, kv_heads: int = 1) -> Case:
    """Return a case by its numbers, in bfloat16."""
    sizes = {"lengths": lengths, "page": page, "heads": heads, "kv_heads": kv_heads, "head": head}
    return {**sizes, "dtype": "bfloat16"}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case("1", 16, 64),
        case("1+15+16+17+31", 16, 64, heads=3, kv_heads=3),
        case("63+64+65+128", 64, 64, heads=8, kv_heads=2),
        case("3x7+2500", 16, 64, heads=12, kv_heads=3),
        case("2x1000", 64, 64, heads=4, kv_heads=1),
        case("33+2", 1, 32, heads=20),
    ),
    far=(case("2050x4100", 64, 64, heads=8, kv_heads=8),),
    reference=reference,
    # As for attention: out is rounded, and each weight for the tensor cores.
    tolerance={dtype: attention.PROBLEM.tolerance[dtype] for dtype in ("bfloat16", "float16")},
    magnitudes=lambda q, k_pages, v_pages, *places: reference(q, k_pages, v_pages.abs(), *places),
    extreme=extreme,
    redistributed=partial(inputs, others=True),
    faults=attention.softmax_faults(partial(_attention, dtype=torch.float64)),
    gpu_limits=(
        case("20000+3", 16, 128, heads=4, kv_heads=2),
        case("70+300", 256, 128, heads=20),
        case("70+3", 1, 256, heads=2),
        case("65537x1", 1, 64),
    ),
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
