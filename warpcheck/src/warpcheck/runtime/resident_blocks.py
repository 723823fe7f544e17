"""The thread blocks that are resident at once, and the order of their turns."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cached_property

import numpy as np

from warpcheck.runtime.arrays import Records
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.records import CtaRecord, LaunchRecord
from warpcheck.runtime.schedule import begin_turn

__all__ = ["Residents", "max_turns"]

MAX_WAITING_BYTES = 512 << 20  # bytes for blocks that wait for others: a grid that is not cooperative gets no more

MAX_INTERLEAVED = 64  # blocks that are resident because they interleave: more than the 32 that a warp sees at once


class Residents:
    """The records of resident blocks: one cluster's at first, and another cluster's each time that all blocks wait.

    A cluster may be one block. The blocks of a cooperative grid are all resident from the beginning. ``resident`` are
    the records in use, ``all_ctas`` all that were ever made. The turns are kept in the launch's records, for ``races``,
    which have room for ``max_turns`` at first.

    Args:
        make_group: Makes the records of one cluster.
        max_blocks: How many blocks fit on the GPU.
    """

    def __init__(
        self, launch: Records, make_group: Callable[[], list[Cta]], max_blocks: int, cooperative: bool
    ) -> None:
        self._launch = weakref.proxy(launch)  # the launch owns this object, and a cycle would outlive the launch
        self._make_group = make_group
        self.all_ctas = list[Cta]()
        self.resident = list[Cta]()
        self._free = list[list[Cta]]()
        self._current_index = 0
        self._add()
        while cooperative and len(self.resident) < launch.get("block_count"):
            self._add()
        self._capacity = max_blocks

    @cached_property
    def _max_blocks(self) -> int:
        """The most blocks that may be resident: no more than fit on the GPU, and than there is memory for."""
        return min(self._capacity, max(1, MAX_WAITING_BYTES // self.all_ctas[0].nbytes))

    @property
    def current(self) -> Cta:
        """Return the block whose turn it is."""
        return self.resident[self._current_index]

    def retire(self) -> bool:
        """Remove the block whose turn it was, which has exited. Return whether other blocks are resident."""
        if len(self.resident) == 1 and len(self.resident[0].cluster) == 1:
            return False
        # The blocks of a cluster may still access each other's shared memory: its records are reused together.
        cluster = self.resident.pop(self._current_index).cluster
        self._current_index -= 1
        if not any(cta in self.resident for cta in cluster):
            self._free.append(cluster)
            if len(cluster) > 1 and self._launch.get("block_next") < self._launch.get("block_count"):
                self._add()
                return True
        if not self.resident:
            self.resident = list(self._free.pop())
            self._current_index = 0
            return False
        self._begin_turn()
        return True

    def give_way(self, all_stuck: bool) -> None:
        """Begin a new block if there is room for one, else give the turn to the block that has waited longest.

        Blocks of a cluster wait for each other; another cluster comes only when all that are resident are stuck.
        """
        size = len(self.current.cluster)
        blocks_remain = self._launch.get("block_next") < self._launch.get("block_count")
        # A resident block may wait for one that has not begun. On a GPU both would be resident, if there is room.
        if blocks_remain and (all_stuck or size == 1) and len(self.resident) + size <= self._max_blocks:
            self._add()
            return
        self._current_index -= 1
        self._begin_turn()

    def interleave(self) -> None:
        """Begin a new block if few are resident, else give the turn to the next block. No cluster has several."""
        blocks_remain = self._launch.get("block_next") < self._launch.get("block_count")
        if blocks_remain and len(self.resident) < min(MAX_INTERLEAVED, self._max_blocks):
            self._add()
            return
        self._current_index -= 1
        self._begin_turn()

    def _add(self) -> None:
        """Add the records of a cluster; the turn is that of its first block to run."""
        if not self._free:
            self._free.append(self._make_group())
            self.all_ctas += self._free[-1]
        cluster = self._free.pop()
        # The last one in the list has its turn first, as blocks run from the end of it.
        self.resident += cluster if self._launch.get("reverse") else reversed(cluster)
        self._current_index = len(self.resident) - 1

    def _begin_turn(self) -> None:
        self._current_index %= len(self.resident)
        self._make_room_for_turns()
        if self.current.get("block_began"):
            begin_turn(LaunchRecord(self._launch.address), CtaRecord(self.current.address))

    def _make_room_for_turns(self) -> None:
        launch = self._launch
        needed = launch.get("turn_count") + max_turns(launch.get("block_count") - launch.get("block_next"))
        if needed > launch.array("turns").size:
            launch.point(**{name: _extend(launch.array(name), 2 * needed) for name in ("turns", "turn_blocks")})


def max_turns(blocks: int) -> int:
    """Return how many turns there are at most until a block has to wait, if so many blocks have yet to begin."""
    # Two for each block, for its beginning and that of its cluster, and one for the block whose turn it is.
    return 2 * blocks + 2


def _extend(array: np.ndarray[tuple[int], np.dtype[np.int64]], size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    longer = np.zeros(size, np.int64)
    longer[: array.size] = array
    return longer
