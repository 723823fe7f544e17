"""The thread blocks that are resident at once, and whose turn it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelpath.simt.run.arrays import Records
from kernelpath.simt.run.cta import Cta

__all__ = ["Residents"]

ROOM = 512 << 20  # bytes for blocks that wait for others: a grid that is not cooperative gets no more


class Residents:
    """Places for blocks: one, and another each time that a block waits for others; ``cooperative`` ones all at once.

    ``most`` is what the GPU has room for; ``busy`` are the places in use, ``all`` those that ever were. The turns are
    kept in the launch's records, for ``races``.
    """

    def __init__(self, launch: Records, make: Callable[[], Cta], most: int, cooperative: bool) -> None:
        self._launch, self._make = launch, make
        self.all = [make()]
        if cooperative:
            self.all += [make() for _ in range(1, launch.get("block_count"))]
        self._most = min(most, max(1, ROOM // sum(array.nbytes for array in self.all[0].arrays.values())))
        self.busy, self._free = list(self.all), list[Cta]()
        self._now = len(self.busy) - 1
        launch.point(turns=np.zeros(0, np.int64), turn_blocks=np.zeros(0, np.int64))
        self._make_room_for_turns()

    @property
    def cta(self) -> Cta:
        """Whose turn it is."""
        return self.busy[self._now]

    def retire(self) -> bool:
        """The place is empty, and no block is left for it. Returns whether others are resident."""
        self._free.append(self.busy.pop(self._now))
        self._now -= 1
        if not self.busy:
            self.busy, self._now = [self._free.pop()], 0
            return False
        self._begin_turn()
        return True

    def give_way(self) -> None:
        """A new block has its turn, if there is room for one, else the one that has been resident for next longest."""
        if self._launch.get("block_next") < self._launch.get("block_count") and len(self.busy) < self._most:
            self.busy.append(self._free.pop() if self._free else self._new())
            self._now = len(self.busy) - 1
            return
        self._now -= 1
        self._begin_turn()

    def _new(self) -> Cta:
        self.all.append(self._make())
        return self.all[-1]

    def _begin_turn(self) -> None:
        self._now %= len(self.busy)
        self._make_room_for_turns()
        cta, launch = self.cta, self._launch
        if cta.get("block_began"):
            time, count = launch.get("time") + 1, launch.get("turn_count")
            launch.set(time=time, turn_count=count + 1)
            launch.arrays["turns"][count] = time
            launch.arrays["turn_blocks"][count] = cta.get("block_number")
            cta.set(turn_began=time)

    def _make_room_for_turns(self) -> None:
        launch = self._launch
        needed = launch.get("turn_count") + launch.get("block_count") - launch.get("block_next") + 1
        if needed > launch.arrays["turns"].size:
            launch.point(**{name: _longer(launch.arrays[name], 2 * needed) for name in ("turns", "turn_blocks")})


def _longer(array: np.ndarray[tuple[int], np.dtype[np.int64]], size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    longer = np.zeros(size, np.int64)
    longer[: array.size] = array
    return longer
