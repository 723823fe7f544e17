"""Compare the fast path for common accesses with the full race check: same verdict, same history."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from warpcheck.layout import PENDING, UNWRITTEN, WRITTEN, Access, Space
from warpcheck.native import load64, offset_bits, store64
from warpcheck.runtime.access_history import ENTRY_BYTES, STRONG, WAS_ATOMIC, Granule
from warpcheck.runtime.buffers import empty_history
from warpcheck.runtime.fast_path import (
    EntryRange,
    instant_of,
    record_common_read,
    record_common_reads,
    record_common_write,
    record_common_writes,
)
from warpcheck.runtime.happens_before import WARPS
from warpcheck.runtime.memory import ADDRESSES, MemoryOperation, Segment, are_all_common, is_common_access
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
        if not self.cta.block_began or self.rng.random() < 0.3:  # another block has the record from now on
            self.cta.block_began = self.launch.time
            self.cta.last_barrier_time = self.launch.time
            self.cta.acquired_at = 0
            for clock in self.clocks:
                clock[:] = 0
            np.fill_diagonal(self.clocks[0], self.launch.time)
        if self.rng.random() < 0.2:  # an atomic operation, and a fence of a block
            self.cta.acquired_at = self.launch.time - self.rng.randrange(3)
            self.arrays["published_at"][self.rng.randrange(2)] = self.launch.time
        store64(self.launch.turns + 8 * self.launch.turn_count, self.launch.time)
        store64(self.launch.turn_blocks + 8 * self.launch.turn_count, self.cta.block_number)
        self.launch.turn_count += 1

    def synchronize(self) -> None:
        """Order some warps after others, as barriers and __syncwarp do."""
        self.launch.time += 1
        vector_clock, vc_released, _ = self.clocks
        if self.rng.random() < 0.2:  # a barrier of the whole block
            self.cta.last_barrier_time = self.launch.time
            vector_clock[:WARP_COUNT, :WARP_COUNT] = self.launch.time
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


def set_addresses(warp: WarpRecord, addresses: Iterable[int]) -> None:
    for lane, address in enumerate(addresses):
        store64(warp.address + ADDRESSES + 8 * lane, address)


@pytest.mark.parametrize("kind", [Access.LOAD, Access.STORE])
@pytest.mark.parametrize(("size", "granule", "start"), [(4, 2, 0), (1, 2, 0), (16, 2, 0), (8, 3, 4)])
def test_each_granule_of_each_lane_is_recorded(kind: Access, size: int, granule: int, start: int) -> None:
    """Bytes that begin in the middle of a granule have accesses of one granule's size that touch two."""
    block = Block(random.Random(0), converges=False)
    warp = WarpRecord(block.address_of("warps"))
    rng = random.Random(0)
    # Lanes read a few addresses in common, and write to granules of their own.
    places = [rng.randrange(8) for _ in range(32)] if kind == Access.LOAD else rng.sample(range(32), 32)
    addresses = 4096 + max(2 * size, 8) * np.array(places)
    set_addresses(warp, addresses.tolist())
    lanes = 0xF0F0F0F1
    entries, _ = empty_history(1024)
    expected, _ = empty_history(1024)
    record_all, record_one = record_common_reads, record_common_read
    if kind == Access.STORE:
        record_all, record_one = record_common_writes, record_common_write
    entry_range = EntryRange(entries.ctypes.data, 4096 - start, granule, size, block.launch.time)
    assert record_all(block.launch, block.cta, warp, 1, lanes, entry_range) == 0
    instant = instant_of(block.launch, block.cta, warp, 1)
    for lane in range(32):
        if lanes >> lane & 1:
            offset = int(addresses[lane]) - 4096 + start
            for number in range(offset >> granule, (offset + size - 1 >> granule) + 1):
                entry = expected.ctypes.data + ENTRY_BYTES * number
                assert record_one(instant, block.launch.time, entry, lane)
    assert np.array_equal(entries, expected)
    assert entries.any()


def test_lanes_behind_the_first_uncommon_one_are_left() -> None:
    block = Block(random.Random(0), converges=False)
    warp = WarpRecord(block.address_of("warps"))
    set_addresses(warp, range(4096, 4096 + 32 * 4, 4))
    history, _ = empty_history(64)
    # Lane 5 meets an atomic write of another warp.
    store64(history.ctypes.data + 5 * ENTRY_BYTES, block.launch.time << 32 | WAS_ATOMIC | 1 << 12 | 64)
    for record_all in (record_common_reads, record_common_writes):
        entry_range = EntryRange(history.ctypes.data, 4096, 2, 4, 1)
        assert record_all(block.launch, block.cta, warp, 1, 0xFF, entry_range) == 0xE0
        assert not history[6 * ENTRY_BYTES :].any()


@pytest.mark.parametrize("kind", [Access.LOAD, Access.STORE])
def test_lanes_that_are_checked_together_would_each_be_common(kind: Access) -> None:
    rng = random.Random(0)
    states = np.zeros(4096, np.uint8)
    start = 1 << 20
    outcomes = Counter[bool]()
    for _ in range(300):
        size = rng.choice([1, 2, 4, 8, 16])
        operation = MemoryOperation(Space.GLOBAL, kind, size, 1, 0, 0, 0, 0, 0, 0)
        states[:] = 0
        for _ in range(rng.choice([0, 1, 3])):
            states[rng.randrange(1024)] = rng.choice([UNWRITTEN, PENDING, WRITTEN])
        base = rng.choice([0, 32, 1024, 4096 - 32 * size, 4 * rng.randrange(64)])
        stride = rng.choice([0, size, 2 * size, 4, -size])
        offsets = [base + stride * lane + rng.choice([0, 0, 0, size]) for lane in range(32)]
        addresses = np.array([start + offset for offset in offsets])
        nbytes = rng.choice([4096, base + 32 * size, 1024])
        segment = Segment(Space.GLOBAL, start, start + nbytes, 1, states.ctypes.data, 0, 2, 0)
        spread = offset_bits(addresses.ctypes.data)
        is_common = bool(are_all_common(segment, int(addresses[0]), spread, operation))
        outcomes[is_common] += 1
        if is_common:
            assert all(is_common_access(segment, address, operation) for address in addresses.tolist())
    assert min(outcomes[True], outcomes[False]) > 20, outcomes
