"""The states of bytes: whether they may be read, and whether an asynchronous copy has yet to write them."""

from __future__ import annotations

from warpcheck.layout import WRITTEN, Access
from warpcheck.native import load8, native, store8

__all__ = ["ODD", "initialised", "is_pending", "number_at"]

ODD = 0x0101010101010101  # UNWRITTEN and PENDING are odd


@native
def initialised(state: int, size: int, kind: int) -> int:
    """Whether bytes may be read; a store makes them so. ``state`` is the address of their states."""
    for part in range(0, size, 8):
        if kind != Access.STORE and number_at(state + part, min(size - part, 8)) & ODD:
            return 0
    if kind != Access.LOAD:
        for byte in range(size):
            store8(state + byte, WRITTEN)
    return 1


@native
def is_pending(state: int, size: int) -> int:
    """Whether an asynchronous copy has yet to write some of these bytes: PENDING alone has both low bits."""
    for part in range(0, size, 8):
        states = number_at(state + part, min(size - part, 8))
        if states & states >> 1 & ODD:
            return 1
    return 0


@native
def number_at(address: int, size: int) -> int:
    """``size`` bytes as an unsigned number."""
    number = 0
    for byte in range(size):
        number |= load8(address + byte) << 8 * byte
    return number
