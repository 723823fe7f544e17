"""Counting what an access costs, as the profiler of the hardware counts it, and the sums by source line.

Global memory moves in sectors of 32 bytes: a request needs each sector that its lanes touch once. Shared memory has 32
banks of 4 bytes: lanes that want different words of one bank wait for each other, and each round is a wavefront.
Accesses of 8 and 16 bytes go in groups of 16 and 8 lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
from numba import njit

__all__ = ["LineCounters", "count_sectors", "count_wavefronts", "least_wavefronts"]

LANES = 32
BANKS = 32


@dataclass
class LineCounters:
    """What one source line did, summed over the launch. Requests are accesses of whole warps.

    ``sectors`` are of 32 bytes; ``*_bytes`` are those that the lanes asked for; ``least_wavefronts`` is what the same
    words need without bank conflicts. ``active_lanes`` sums the lanes of every instruction that a warp executed,
    ``warp_instructions`` counts those instructions; ``instructions`` counts lanes by class of instruction.
    """

    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_load_bytes: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_store_bytes: int = 0
    shared_load_requests: int = 0
    shared_load_wavefronts: int = 0
    shared_load_least_wavefronts: int = 0
    shared_load_bytes: int = 0
    shared_store_requests: int = 0
    shared_store_wavefronts: int = 0
    shared_store_least_wavefronts: int = 0
    shared_store_bytes: int = 0
    branches: int = 0
    divergent_branches: int = 0
    warp_instructions: int = 0
    active_lanes: int = 0
    instructions: dict[str, int] = field(default_factory=dict)

    @property
    def sectors_per_request(self) -> float:
        """Global sectors over global requests; 0 without requests. 4 is best for 4-byte accesses of whole warps."""
        requests = self.global_load_requests + self.global_store_requests
        return (self.global_load_sectors + self.global_store_sectors) / requests if requests else 0.0

    @property
    def bank_conflicts(self) -> int:
        """Shared-memory wavefronts over the least possible."""
        wavefronts = self.shared_load_wavefronts + self.shared_store_wavefronts
        return wavefronts - self.shared_load_least_wavefronts - self.shared_store_least_wavefronts

    @property
    def bank_conflicts_per_request(self) -> float:
        """Extra wavefronts over shared requests; 0 without requests."""
        requests = self.shared_load_requests + self.shared_store_requests
        return self.bank_conflicts / requests if requests else 0.0

    @property
    def lanes_per_instruction(self) -> float:
        """Active lanes of the average instruction, at most 32."""
        return self.active_lanes / self.warp_instructions if self.warp_instructions else 0.0

    def add(self, other: LineCounters) -> None:
        """Add another line's counts to these."""
        for item in fields(self):
            if item.name != "instructions":
                setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
        for name, count in other.instructions.items():
            self.instructions[name] = self.instructions.get(name, 0) + count


@njit(cache=True)
def count_sectors(addresses, mask):
    """Different sectors among the active lanes. An aligned access of up to 16 bytes lies within one."""
    sectors = 0
    while mask:
        sector = addresses[lowest_bit(mask)] >> 5
        sectors += 1
        for lane in range(LANES):
            if addresses[lane] >> 5 == sector:
                mask &= ~(np.int64(1) << lane)
    return sectors


@njit(cache=True)
def count_wavefronts(addresses, mask, size):
    """Rounds that the banks need: for each group of lanes, the most different words in one bank."""
    group = LANES if size <= 4 else LANES * 4 // size
    wavefronts = 0
    for first in range(0, LANES, group):
        wavefronts += bank_rounds(addresses, mask, first, group, size)
    return wavefronts


@njit(cache=True)
def bank_rounds(addresses, mask, first, lanes, size):
    words = np.empty((BANKS, LANES), np.int64)
    depth = np.zeros(BANKS, np.int64)
    most = 0
    for lane in range(first, first + lanes):
        if mask >> lane & 1:
            for part in range(0, size, 4):
                word = addresses[lane] + part >> 2
                bank = word % BANKS
                if not contains(words[bank], depth[bank], word):
                    words[bank, depth[bank]] = word
                    depth[bank] += 1
                    most = max(most, depth[bank])
    return most


@njit(cache=True)
def contains(words, count, word):
    for index in range(count):
        if words[index] == word:
            return True
    return False


@njit(cache=True)
def least_wavefronts(addresses, mask, size):
    """Rounds without conflicts: one for each group that has an active lane."""
    group = LANES if size <= 4 else LANES * 4 // size
    least = 0
    for first in range(0, LANES, group):
        least += (mask >> first & (1 << group) - 1) != 0
    return least


@njit(cache=True)
def lowest_bit(mask):
    lane = 0
    while not mask >> lane & 1:
        lane += 1
    return lane
