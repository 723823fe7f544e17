"""Merge the histories of blocks that ran at the same time into the history that one core would have left.

Each worker of ``block_workers`` records its accesses in a history of its own, which is empty at first, with times that
are later in later blocks. Two workers are in conflict at a granule that both have accessed and one has written; so is a
worker with the blocks that ran before. Without a conflict, every check has had the outcome that it has on one core,
because it depends on the accesses to its granule alone. What differs is the record of reads of a granule by several
workers, of which an entry keeps the last block, and one reader of the block before that (see ``races``).
"""

from __future__ import annotations

from warpcheck.native import View, load64, native, store64
from warpcheck.runtime.access_history import ENTRY_BYTES, LOW_WORD, id_of, time_of
from warpcheck.runtime.records import MERGE

__all__ = ["MergeRecord", "find_conflict", "merge_entries"]


class MergeRecord(View):
    """A view of MERGE."""

    record = MERGE


@native
def find_conflict(merge: MergeRecord, first: int, stop: int) -> int:
    """Return whether a worker is in conflict with another one, or with an earlier block, in these granules."""
    for granule in range(first, stop):
        entry = ENTRY_BYTES * granule
        accessed = 0
        written = 0
        for worker in range(merge.worker_count):
            own = load64(merge.histories + 8 * worker) + entry
            is_written = load64(own) != 0
            written += is_written
            accessed += is_written or load64(own + 8) != 0
        if accessed:
            earlier = merge.history + entry
            is_written = time_of(load64(earlier)) >= merge.launch_began
            is_read = time_of(load64(earlier + 8)) >= merge.launch_began
            if is_written or (written and (is_read or accessed > 1)):
                return 1
    return 0


@native
def merge_entries(merge: MergeRecord, first: int, stop: int) -> int:
    """Move what the workers have recorded of these granules into the launch's history. There is no conflict.

    The histories of the workers are empty afterwards.
    """
    for granule in range(first, stop):
        entry = ENTRY_BYTES * granule
        last = 0
        last_time = -1
        for worker in range(merge.worker_count):
            own = load64(merge.histories + 8 * worker) + entry
            time = max(time_of(load64(own)), time_of(load64(own + 8)))
            if time > 0 and time > last_time:
                last = own
                last_time = time
        if last:
            target = merge.history + entry
            if load64(last):
                # Without a conflict, no other worker has accessed a granule that this one has written.
                store64(target, moved(merge, load64(last)))
                store64(target + 24, moved(merge, load64(last + 24)))
            else:
                merge_readers(merge, entry, last)
            store64(target + 8, moved(merge, load64(last + 8)))
            # A worker that has only written has no readers here, and on one core, a write leaves the ids of earlier
            # readers as they are.
            if load64(last + 16):
                store64(target + 16, load64(last + 16))
            for worker in range(merge.worker_count):
                clear_entry(load64(merge.histories + 8 * worker) + entry)
    return 0


@native
def clear_entry(entry: int) -> None:
    """Clear an entry, unless it is empty."""
    if load64(entry) | load64(entry + 8):
        for word in range(ENTRY_BYTES // 8):
            store64(entry + 8 * word, 0)


@native
def merge_readers(merge: MergeRecord, entry: int, last: int) -> None:
    """Set the reader of another block in an entry that was only read, last by the worker with the entry ``last``.

    It is the last reader of the last block that read the granule before the block of the last read did.
    """
    target = merge.history + entry
    reader = load64(last + 24)
    for worker in range(merge.worker_count):
        own = load64(merge.histories + 8 * worker) + entry
        if own != last and time_of(load64(own + 8)) > time_of(reader):
            reader = time_of(load64(own + 8)) << 32 | id_of(load64(own + 16))
    if reader:
        store64(target + 24, moved(merge, reader))
    elif time_of(load64(target + 8)) >= merge.launch_began:
        # The last reader is of a block that ran before the workers. Its time is that of the launch already.
        store64(target + 24, time_of(load64(target + 8)) << 32 | id_of(load64(target + 16)))


@native
def moved(merge: MergeRecord, word: int) -> int:
    """Return a word of a worker's history with the time that it has in the launch; 0 remains 0."""
    if word == 0:
        return 0
    time = time_of(word)
    part = time - merge.began >> merge.part_shift
    return time + load64(merge.delays + 8 * part) << 32 | word & LOW_WORD
