"""Find the blocks that last read the bytes of global memory, from the history of a launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from warpcheck.runtime.access_history import LOW_WORD

if TYPE_CHECKING:
    from warpcheck.runtime.launch import Grid

__all__ = ["LastReads", "find_last_reads", "most_bytes_read"]


class LastReads(NamedTuple):
    """A read of each granule that a launch has read: the last one, or one of another block that is concurrent with it.

    Attributes:
        times: The times of the reads.
        access_ids: See access_history.
        blocks: The numbers of the reading blocks, in the order of the schedule.
        behind_write: Whether the granule was written earlier in the launch.
        granule_bytes: The size of a granule.
    """

    times: npt.NDArray[np.int64]
    access_ids: npt.NDArray[np.int64]
    blocks: npt.NDArray[np.int64]
    behind_write: npt.NDArray[np.bool_]
    granule_bytes: int


def find_last_reads(grid: Grid, start: int, end: int) -> Iterator[LastReads]:
    """Yield the plain reads of the addresses [start, end) by a launch that has ended.

    Each buffer there yields two values: the last reads, and the reads of other blocks that are concurrent with those.
    A granule that the launch wrote afterwards has no read.
    """
    began, ended = grid.get("launch_began"), grid.get("time")
    for entries, granule in grid.history_entries(start, end):
        # The words of an entry: see races.
        for time_word, id_word in ((1, 2), (3, 3)):
            times = entries[:, time_word] >> 32
            is_read = (entries[:, time_word] != 0) & (times >= began) & (times <= ended)
            times = times[is_read]
            yield LastReads(
                times=times,
                access_ids=entries[is_read, id_word] & LOW_WORD,
                blocks=grid.blocks_at(times),
                behind_write=entries[is_read, 0] >> 32 >= began,
                granule_bytes=1 << granule,
            )


def most_bytes_read(grid: Grid, start: int, end: int) -> int:
    """Return the most bytes of [start, end) that one block of a launch was the last to read."""
    read = np.zeros(grid.get("block_count"), np.int64)
    for reads in find_last_reads(grid, start, end):
        read += reads.granule_bytes * np.bincount(reads.blocks, minlength=len(read))
    return int(read.max(initial=0))
