"""The bytes that a phase of an mbarrier still expects: bits 40 to 60 of its object; see ``mbarriers``."""

from __future__ import annotations

from warpcheck.native import native
from warpcheck.runtime.records import MbarrierRecord

__all__ = ["PENDING_MASK", "PENDING_SHIFT", "add_pending_bytes", "expect_bytes", "pending_overflows"]

PENDING_SHIFT = 40  # first of 21 bits, signed
PENDING_MASK = (1 << 21) - 1
MAX_PENDING_BYTES = (1 << 20) - 1  # bytes that a phase may have pending


@native
def expect_bytes(record_address: int, site: int, state: int, count: int) -> int:
    """Return an object that expects ``count`` more bytes, and record which instruction announced them."""
    record = MbarrierRecord(record_address)
    record.expected_bytes += count
    record.expect_site = site + 1
    return add_pending_bytes(state, count)


@native
def add_pending_bytes(state: int, count: int) -> int:
    """Return an object that expects ``count`` more bytes."""
    pending = (state >> PENDING_SHIFT) + count & PENDING_MASK
    return state & ~(PENDING_MASK << PENDING_SHIFT) | pending << PENDING_SHIFT


@native
def pending_overflows(state: int, count: int) -> int:
    """Return whether an object cannot expect ``count`` more bytes."""
    pending = state >> PENDING_SHIFT & PENDING_MASK
    return pending <= MAX_PENDING_BYTES and pending + count > MAX_PENDING_BYTES
