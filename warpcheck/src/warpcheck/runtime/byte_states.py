"""The states of bytes: may they be read, and has an asynchronous copy yet to write them."""

from __future__ import annotations

from warpcheck.layout import WRITTEN, Access
from warpcheck.native import load8, native, store8

__all__ = ["UNREADABLE_BITS", "check_states", "is_pending", "load_bytes"]

UNREADABLE_BITS = 0x0101010101010101  # UNWRITTEN and PENDING are odd


@native
def check_states(state: int, size: int, kind: int) -> int:
    """Return whether bytes may be accessed; a write marks them as written. ``state`` is the address of their states."""
    for part in range(0, size, 8):
        if kind != Access.STORE and load_bytes(state + part, min(size - part, 8)) & UNREADABLE_BITS:
            return 0
    if kind != Access.LOAD:
        for byte in range(size):
            store8(state + byte, WRITTEN)
    return 1


@native
def is_pending(state: int, size: int) -> int:
    """Return whether an asynchronous copy has yet to write some of these bytes: only PENDING has both low bits set."""
    for part in range(0, size, 8):
        states = load_bytes(state + part, min(size - part, 8))
        # Eight states at once: a byte of PENDING (3) has bits 0 and 1 set.
        if states & states >> 1 & UNREADABLE_BITS:
            return 1
    return 0


@native
def load_bytes(address: int, size: int) -> int:
    """Return ``size`` bytes as an unsigned number."""
    number = 0
    for byte in range(size):
        number |= load8(address + byte) << 8 * byte
    return number
