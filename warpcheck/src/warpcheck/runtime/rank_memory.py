"""Find accesses to the memory of a rank that only the beginning or the end of the common launch orders.

On one GPU a launch may stand for several: the blocks with the same y coordinate are a rank, which would be a launch of
its own on several GPUs. The end of the only launch orders all writes. The end of a rank orders only the writes that a
block of the rank has waited for: the writing block has released them, and the block of the rank has acquired since.

The beginning of the only launch orders all reads behind what was written before. The beginning of a rank orders only
the reads of its own blocks. For other ranks, a block of the rank has to release, and they have to acquire.

Ranks communicate with the scope of the system. With the scope of a GPU, two ranks race.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from warpcheck.errors import Fault, FaultKind
from warpcheck.runtime.access_history import LOW_WORD, WAS_ATOMIC, thread_of
from warpcheck.runtime.cta import thread_coordinates
from warpcheck.runtime.last_reads import find_last_reads
from warpcheck.runtime.launch import Grid
from warpcheck.runtime.symbols import source_name

__all__ = ["RankMemory", "find_unordered_read", "find_unordered_write", "mark_device_scopes"]


class RankMemory(NamedTuple):
    """The addresses [start, end) of a rank."""

    rank: int
    start: int
    end: int


def mark_device_scopes(grid: Grid) -> None:
    """Note in the records of a launch which accesses order nothing for other ranks."""
    grid.array("samples")["has_device_scope"] = grid.configuration.device_scoped_sites


def find_unordered_write(grid: Grid, memory: Sequence[RankMemory]) -> Fault | None:
    """Return the fault of a launch that has ended, if a rank ended before it was ordered behind a write of another one.

    The rule is that of `happens_before.is_unordered` for two blocks, at the end of the blocks of the rank.
    """
    block_count = grid.get("block_count")
    rank_of_block = np.array([grid.coordinates_of(number)[1] for number in range(block_count)])
    published_at = grid.array("published_at")[:block_count]
    acquired_at = grid.array("acquired_at_exit")[:block_count]
    for rank, start, end in memory:
        last_acquired = int(acquired_at[rank_of_block == rank].max(initial=0))
        for entries, _ in grid.history_entries(start, end):
            writes = entries[:, 0]
            writes = writes[writes & WAS_ATOMIC == 0]  # flags, by which ranks wait for each other
            times = writes >> 32
            writers = grid.blocks_at(times)
            is_ordered = (last_acquired > times) & (published_at[writers] > times)
            is_by_other_rank = (times >= grid.get("launch_began")) & (rank_of_block[writers] != rank)
            for write in writes[is_by_other_rank & ~is_ordered][:1].tolist():
                consequence = (
                    "nothing orders this before the end of that rank: a rank has to wait at its end until all others "
                    "have written"
                )
                description = f"writes to the memory of rank {rank}, and {consequence}"
                return _make_fault(grid, description, write & LOW_WORD, write >> 32)
    return None


def find_unordered_read(grid: Grid, memory: Sequence[RankMemory]) -> Fault | None:
    """Return the fault of a launch that has ended, if a rank read what another one had in its memory before the launch,
    and did not wait for a flag of that rank.

    Only the last reads are known, and of each block when it first released and when it last acquired. A block that
    reads first and waits afterwards is therefore found only if it read before the other rank had released anything.
    """
    rank_of_block = np.array([grid.coordinates_of(number)[1] for number in range(grid.get("block_count"))])
    first_published_at = grid.array("first_published_at")
    acquired_at = grid.array("acquired_at_exit")
    for rank, start, end in memory:
        published = first_published_at[(rank_of_block == rank) & (first_published_at > 0)]
        first_published = published.min(initial=np.iinfo(np.int64).max)
        for reads in find_last_reads(grid, start, end):
            is_by_other_rank = rank_of_block[reads.blocks] != rank
            is_ordered = (reads.times > first_published) & (acquired_at[reads.blocks] > first_published)
            is_fault = is_by_other_rank & ~is_ordered & ~reads.behind_write
            for access_id, time in zip(reads.access_ids[is_fault][:1], reads.times[is_fault][:1], strict=True):
                consequence = "nothing orders this behind the beginning of that rank: wait for a flag of a rank first"
                return _make_fault(
                    grid, f"reads the memory of rank {rank}, and {consequence}", int(access_id), int(time)
                )
    return None


def _make_fault(grid: Grid, description: str, access_id: int, time: int) -> Fault:
    origin = grid.origin_of(access_id, time)
    accessor = f"thread {origin.thread} of block {origin.block}"
    if grid.module.of_triton:
        accessor = f"program {origin.block}"
    message = f"{accessor} {description}"
    block = grid.coordinates_of(origin.block_number)
    thread = thread_coordinates(grid.block, thread_of(access_id))
    return Fault(FaultKind.RACE, message, source_name(grid.name), grid.module.file, origin.site.line, block, thread)
