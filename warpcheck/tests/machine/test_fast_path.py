"""Compare the fast path for common accesses with the full race check: same verdict, same history."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from warpcheck.layout import Access
from warpcheck.native import load64, store64
from warpcheck.runtime.access_history import ENTRY_BYTES, STRONG, Granule
from warpcheck.runtime.buffers import empty_history
from warpcheck.runtime.fast_path import instant_of, record_common_read, record_common_write
from warpcheck.runtime.happens_before import WARPS
from warpcheck.runtime.races import check_race
from warpcheck.runtime.records import CTA, LAUNCH, SAMPLE, WARP, CtaRecord, LaunchRecord, WarpRecord

WARP_COUNT = 3
SITES = 4
TURNS = 1000


class Block:
    """The records of two blocks that take turns, and a granule that both of them access."""

    def __init__(self, rng: random.Random, converges: bool) -> None:
        self.rng = rng
        self.arrays = {
            "launch": np.zeros(1, LAUNCH),
            "cta": np.zeros(1, CTA),
            "warps": np.zeros(WARP_COUNT, WARP),
            "samples": np.zeros(SITES + 1, SAMPLE),
            "turns": np.zeros(TURNS, np.int64),
            "turn_blocks": np.zeros(TURNS, np.int64),
            "published_at": np.zeros(2, np.int64),
        }
        self.clocks = [np.zeros((WARPS, WARPS), np.int64) for _ in range(3)]
        self.history, self.replaced = empty_history(2)
        self.launch = LaunchRecord(self.address_of("launch"))
        self.cta = CtaRecord(self.address_of("cta"))
        for field in ("samples", "turns", "turn_blocks", "published_at"):
            setattr(self.launch, field, self.address_of(field))
        for field, clock in zip(("vector_clock", "vc_released", "vc_observed"), self.clocks, strict=True):
            setattr(self.cta, field, clock.ctypes.data)
        self.launch.cluster_size = 1
        self.launch.converges = converges
        self.cta.warp_count = WARP_COUNT
        self.cta.warps = self.address_of("warps")
        self.cta.warp_stride = WARP.itemsize
        self.launch.time = 1
        self.launch.launch_began = 1
        self.entry = self.history.ctypes.data
        self.begin_turn()

    def address_of(self, name: str) -> int:
        return self.arrays[name].ctypes.data

    def begin_turn(self) -> None:
        """Let either of the two blocks run next."""
        self.launch.time += 1
        self.cta.block_number = self.rng.randrange(2)
        self.cta.turn_began = self.launch.time
        self.cta.block_began = self.cta.block_began or self.launch.time
        store64(self.launch.turns + 8 * self.launch.turn_count, self.launch.time)
        store64(self.launch.turn_blocks + 8 * self.launch.turn_count, self.cta.block_number)
        self.launch.turn_count += 1

    def synchronize(self) -> None:
        """Order some warps after others, as barriers and __syncwarp do."""
        self.launch.time += 1
        vector_clock, vc_released, _ = self.clocks
        for warp in self.rng.sample(range(WARP_COUNT), self.rng.randint(1, WARP_COUNT)):
            for other_warp in self.rng.sample(range(WARP_COUNT), self.rng.randint(1, WARP_COUNT)):
                vector_clock[warp, other_warp] = self.launch.time
        if self.rng.random() < 0.3:
            vc_released[self.rng.randrange(WARP_COUNT)] = self.launch.time

    def access(self, floor: int) -> str:
        """Access the granule once. Return the kind of access, and whether the fast path recorded it."""
        warp = self.rng.randrange(WARP_COUNT)
        lane = self.rng.randrange(3)
        site = self.rng.randrange(SITES)
        kind = self.rng.choice([Access.LOAD, Access.LOAD, Access.STORE])
        ordering = 0
        if self.rng.random() < 0.1:
            kind = self.rng.choice([Access.ATOMIC, Access.STORE])
            ordering = STRONG
        record = WarpRecord(self.address_of("warps") + WARP.itemsize * warp)
        record.index = warp
        before = self.history[:ENTRY_BYTES].copy()
        is_common = 0
        after = before
        if not ordering:
            record_common = record_common_read if kind == Access.LOAD else record_common_write
            is_common = record_common(instant_of(self.launch, self.cta, record, site), floor, self.entry, lane)
            after = self.history[:ENTRY_BYTES].copy()
            self.history[:ENTRY_BYTES] = before
        races = check_race(self.launch, self.cta, Granule(floor, self.entry, 0), warp, lane, site, kind, ordering)
        if is_common:
            assert not races
            assert after.view(np.int64).tolist() == self.history[:ENTRY_BYTES].view(np.int64).tolist()
        else:
            assert np.array_equal(after, before)
        return f"{kind.name} {'fast' if is_common else 'races' if races else 'slow'}" if not ordering else "strong"


@pytest.mark.parametrize("seed", range(4))
def test_the_fast_path_records_the_same_history_as_the_full_check(seed: int) -> None:
    rng = random.Random(seed)
    outcomes = Counter[str]()
    for _ in range(60):
        block = Block(rng, converges=rng.random() < 0.5)
        floor = 1
        for _ in range(20):
            step = rng.random()
            if step < 0.1:
                block.begin_turn()
            elif step < 0.4:
                block.synchronize()
            elif step < 0.45:  # begin the next launch, with a new turn
                floor = block.launch.time
                block.cta.block_began = 0
                block.begin_turn()
            else:
                outcomes[block.access(floor)] += 1
    # The comparison proves nothing about a path that the random accesses never take.
    for kind in ("LOAD", "STORE"):
        for path in ("fast", "races", "slow"):
            assert outcomes[f"{kind} {path}"] > 3, outcomes


def test_a_write_takes_the_fast_path_once_all_readers_are_ordered() -> None:
    """A write after a barrier that all readers have passed is a common case. An earlier write is not."""
    block = Block(random.Random(0), converges=False)
    clock = block.clocks[0]
    warps = [WarpRecord(block.address_of("warps") + WARP.itemsize * index) for index in range(2)]
    warps[1].index = 1
    for lane in range(2):
        assert record_common_read(instant_of(block.launch, block.cta, warps[0], 0), 1, block.entry, lane)
    block.launch.time += 1
    assert not record_common_write(instant_of(block.launch, block.cta, warps[1], 1), 1, block.entry, 0)
    clock[1, 0] = block.launch.time
    assert record_common_write(instant_of(block.launch, block.cta, warps[1], 1), 1, block.entry, 0)
    assert load64(block.entry) >> 32 == block.launch.time
