"""The thread blocks that are resident at once, and whose turn it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warpcheck.runtime.arrays import Records
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.records import CtaRecord, LaunchRecord
from warpcheck.runtime.schedule import begin_turn

__all__ = ["Residents"]

ROOM = 512 << 20  # bytes for blocks that wait for others: a grid that is not cooperative gets no more


class Residents:
    """Places for blocks: those of a cluster, and of another each time that all wait; ``cooperative`` ones all at once.

    A cluster may be one block. ``make`` makes the places of one; ``most`` blocks is what the GPU has room for; ``busy``
    are the places in use, ``all`` those that ever were. The turns are kept in the launch's records, for ``races``.
    """

    def __init__(self, launch: Records, make: Callable[[], list[Cta]], most: int, cooperative: bool) -> None:
        self._launch, self._make = launch, make
        self.all, self.busy = list[Cta](), list[Cta]()
        self._free = list[list[Cta]]()
        self._now = 0
        self._add()
        while cooperative and len(self.busy) < launch.get("block_count"):
            self._add()
        self._most = min(most, max(1, ROOM // sum(array.nbytes for array in self.all[0].arrays.values())))
        launch.point(turns=np.zeros(0, np.int64), turn_blocks=np.zeros(0, np.int64))
        self._make_room_for_turns()

    @property
    def cta(self) -> Cta:
        """Whose turn it is."""
        return self.busy[self._now]

    def retire(self) -> bool:
        """The block whose turn it was has exited, and none is left for its place. Returns whether others are."""
        group = self.busy.pop(self._now).group
        self._now -= 1
        if not any(cta in self.busy for cta in group):
            self._free.append(group)
            if len(group) > 1 and self._launch.get("block_next") < self._launch.get("block_count"):
                self._add()
                return True
        if not self.busy:
            self.busy, self._now = list(self._free.pop()), 0
            return False
        self._begin_turn()
        return True

    def give_way(self, stuck: bool) -> None:
        """A new block has its turn, if there is room for one, else the one that has been resident for next longest.

        Blocks of a cluster wait for each other; another cluster comes only when all that are resident are ``stuck``.
        """
        size, left = len(self.cta.group), self._launch.get("block_next") < self._launch.get("block_count")
        if left and (stuck or size == 1) and len(self.busy) + size <= self._most:
            self._add()
            return
        self._now -= 1
        self._begin_turn()

    def _add(self) -> None:
        """Another cluster; the turn is that of the first of its blocks to run."""
        if not self._free:
            self._free.append(self._make())
            self.all += self._free[-1]
        group = self._free.pop()
        self.busy += group if self._launch.get("reverse") else reversed(group)
        self._now = len(self.busy) - 1

    def _begin_turn(self) -> None:
        self._now %= len(self.busy)
        self._make_room_for_turns()
        if self.cta.get("block_began"):
            begin_turn(LaunchRecord(self._launch.address), CtaRecord(self.cta.address))

    def _make_room_for_turns(self) -> None:
        launch = self._launch
        needed = launch.get("turn_count") + 2 * (launch.get("block_count") - launch.get("block_next")) + 2
        if needed > launch.arrays["turns"].size:
            launch.point(**{name: _longer(launch.arrays[name], 2 * needed) for name in ("turns", "turn_blocks")})


def _longer(array: np.ndarray[tuple[int], np.dtype[np.int64]], size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    longer = np.zeros(size, np.int64)
    longer[: array.size] = array
    return longer
