"""All-reduce and its two halves over `world` ranks, of a vector of n elements on each.

Chunk r of a vector is x.tensor_split(world)[r]: the first n % world chunks have one element more, and a chunk may be
empty. Outputs are those of rank 0, rank 1 and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from kernelpath.course.labs.fabric import NVLINK
from kernelpath.course.problem import BYTES, Case, Problem, Tolerance

# The limit of a call's time on the simulated links, relative to all messages posted at once.
ROOM = 1.5

_PHASES = {"reduce_scatter": 1, "all_gather": 1, "ring": 2, "two_shot": 2}


def inputs(rng: torch.Generator, world: int, n: int, dtype: str, algorithm: str) -> tuple[torch.Tensor, str]:
    """Return a row for each rank, and the operation: reduce_scatter, all_gather, or an all-reduce, ring or two_shot.

    Where all ranks have -0.0, the sum may be a zero of either sign, but of the same on all ranks.
    """
    rows = torch.randn(world, n, generator=rng, device=rng.device)
    rows[:, 5::16] = -0.0
    return rows.to(getattr(torch, dtype)), algorithm


def reference(x: torch.Tensor, algorithm: str) -> tuple[torch.Tensor, ...]:
    """Return for every rank the sum of all rows, its chunk of the sum, or every rank's own chunk of its row."""
    total = x.double().sum(0)
    world = len(x)
    if algorithm == "reduce_scatter":
        return total.tensor_split(world)
    if algorithm == "all_gather":
        own = [row.tensor_split(world)[rank] for rank, row in enumerate(x.double())]
        return (torch.cat(own),) * world
    return (total,) * world


def library(x: torch.Tensor, algorithm: str) -> torch.Tensor:
    """Call NCCL's own all-reduce, in place."""
    dist.all_reduce(x)
    return x


def explain_output(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """Explain which other result an output is, or that ranks hold different bits of what must be one vector."""
    x, algorithm = inputs
    if algorithm == "reduce_scatter":
        return _find_other_sum(x, [[(rank, output)] for rank, output in enumerate(outputs)])
    other_sum = _find_other_sum(x, [list(enumerate(output.tensor_split(len(x)))) for output in outputs])
    return (other_sum if algorithm != "all_gather" else None) or _find_disagreement(outputs)


def _find_other_sum(x: torch.Tensor, chunks: Sequence[Sequence[tuple[int, torch.Tensor]]]) -> str | None:
    """Describe the first chunk that is a different chunk, or not the sum of all ranks.

    Returns None if all chunks are right, or if a wrong chunk is neither.

    Args:
        chunks: The chunks of each rank, with their numbers.
    """
    world = len(x)
    tolerance = 1e-5 if x.dtype == torch.float32 else 2e-2
    sums = {
        ranks: x[list(ranks)].double().sum(0).tensor_split(world)
        for size in range(world, 0, -1)
        for ranks in itertools.combinations(range(world), size)
    }
    for rank, (number, chunk) in (
        (rank, numbered) for rank, rank_chunks in enumerate(chunks) for numbered in rank_chunks
    ):
        # The right answer is the first candidate: `sums` begins with all ranks, and the chunk's own number comes first.
        # Otherwise a right chunk could be taken for another one with the same values.
        candidates = [(ranks, index) for ranks in sums for index in dict.fromkeys([number, *range(world)])]
        for ranks, index in candidates:
            total = sums[ranks][index]
            if total.shape != chunk.shape or not torch.allclose(chunk.double(), total, tolerance, tolerance):
                continue
            if (len(ranks), index) == (world, number):
                break
            location = f"rank {rank}'s output" if len(chunks[rank]) == 1 else f"chunk {number} of rank {rank}'s output"
            description = "the sum" if len(ranks) == world else _describe_sum(ranks)
            return f"{location} is chunk {index} of {description}, expected chunk {number} of the sum of all ranks"
    return None


def _describe_sum(ranks: Sequence[int]) -> str:
    *first_ranks, last = map(str, ranks)
    return f"the sum of ranks {', '.join(first_ranks)} and {last} alone" if first_ranks else f"rank {last}'s own vector"


def _find_disagreement(outputs: Sequence[torch.Tensor]) -> str | None:
    """Describe the first element of which ranks hold different bits, though they must hold one vector."""
    for rank, output in enumerate(outputs):
        bits, first_bits = (x.view(torch.int32 if x.itemsize == 4 else torch.int16) for x in (output, outputs[0]))
        differs = bits != first_bits
        if bool(differs.any()):
            index = int(differs.nonzero()[0])
            values = f"{outputs[0][index].item():.9g} on rank 0, {output[index].item():.9g} on rank {rank}"
            return f"the ranks disagree: element {index} is {values}; add in one order, once, and send the sum"
    return None


def chunk(world: int, n: int, dtype: str) -> int:
    """Return the bytes of the largest chunk."""
    return -(-n // world) * BYTES[dtype]


def most_bytes(world: int, n: int, dtype: str, algorithm: str) -> int:
    """Return the bytes that a rank has to send: each phase moves every chunk but one."""
    return _PHASES[algorithm] * (world - 1) * chunk(world, n, dtype)


def least_bytes(world: int, n: int, dtype: str, algorithm: str) -> int:
    """Return the bytes that a rank cannot know: sums over all ranks, and the others' chunks.

    Its own chunk may be the largest.
    """
    sums = n // world if algorithm == "reduce_scatter" else n
    return sums * BYTES[dtype] - (chunk(world, n, dtype) if algorithm == "all_gather" else 0)


def most_seconds(world: int, n: int, dtype: str, algorithm: str) -> float:
    """Return the time of a ring, with a latency per step, or of two shots, with a latency each."""
    moving = most_bytes(world, n, dtype, algorithm) / NVLINK.bandwidth
    steps = _PHASES[algorithm] * (1 if algorithm == "two_shot" else world - 1) if world > 1 else 0
    return ROOM * (moving + steps * NVLINK.latency)


def ring_messages(world: int, n: int, dtype: str, algorithm: str) -> range | None:
    """Return how many messages a rank of a ring sends: one per step. Messages of empty chunks are optional."""
    if algorithm != "ring":
        return None
    steps = 2 * (world - 1)
    return range(steps if n >= world else 0, steps + 1)


def case(world: int, n: int, dtype: str, algorithm: str) -> Case:
    return {"world": world, "n": n, "dtype": dtype, "algorithm": algorithm}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case(1, 5, "float32", "reduce_scatter"),
        case(2, 8, "float32", "reduce_scatter"),
        case(3, 1000, "bfloat16", "reduce_scatter"),
        case(4, 1003, "float32", "reduce_scatter"),
        case(2, 7, "float32", "all_gather"),
        case(3, 1000, "bfloat16", "all_gather"),
        case(4, 1003, "float32", "all_gather"),
        case(1, 5, "float32", "ring"),
        case(2, 1003, "bfloat16", "ring"),
        case(3, 1000, "float32", "ring"),
        case(4, 3, "float32", "ring"),  # a chunk is empty
        case(2, 1003, "bfloat16", "two_shot"),
        case(3, 1000, "bfloat16", "two_shot"),
        case(4, 3, "float32", "two_shot"),
        case(4, 40_003, "float32", "ring"),
        case(4, 40_003, "float32", "two_shot"),
    ),
    reference=reference,
    # Each of up to four vectors takes part in three additions, each of which rounds by 2^-24 or 2^-8 of a partial sum.
    tolerance={
        "float32": Tolerance(rtol=0.0, atol=0.0, mtol=4 * 2**-24),
        "bfloat16": Tolerance(rtol=0.0, atol=0.0, mtol=4 * 2**-8),
    },
    magnitudes=lambda x, *others: reference(x.abs(), *others),
    compulsory_bytes=lambda world, n, dtype, algorithm: world * n * BYTES[dtype] * _PHASES[algorithm],
    vary=("n",),
)
