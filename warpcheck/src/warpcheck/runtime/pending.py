"""The bytes that a phase of an mbarrier still expects: bits of its object; see ``mbarriers``."""

from __future__ import annotations

from warpcheck.native import native
from warpcheck.runtime.records import MbarrierRecord

__all__ = ["BYTES", "TRANSACTIONS", "overflows", "promised", "transacted"]

TRANSACTIONS = 40  # where they begin: 21 bits, signed
BYTES = (1 << 21) - 1
MOST = (1 << 20) - 1  # bytes that a phase may have pending


@native
def promised(place: int, number: int, state: int, count: int) -> int:
    """An object that is told to expect so many bytes more, by the instruction of this number."""
    record = MbarrierRecord(place)
    record.promised += count
    record.promise = number + 1
    return transacted(state, count)


@native
def transacted(state: int, count: int) -> int:
    """An object that expects so many bytes more."""
    left = (state >> TRANSACTIONS) + count & BYTES
    return state & ~(BYTES << TRANSACTIONS) | left << TRANSACTIONS


@native
def overflows(state: int, count: int) -> int:
    """Whether an object cannot expect so many bytes more."""
    left = state >> TRANSACTIONS & BYTES
    return left <= MOST and left + count > MOST
