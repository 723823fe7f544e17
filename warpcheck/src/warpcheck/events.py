"""The events of the warps of one thread block, or of one cluster, in order: copies, arrivals, products and waits.

Launches inside ``recorded`` keep the events of the block or cluster that runs first; other launches keep none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from warpcheck.layout import Code

__all__ = ["EVENTS", "Event", "EventKind", "recorded", "recording"]

# The most events of a launch that are kept.
EVENTS = 1 << 15

recording: ContextVar[bool] = ContextVar("recording", default=False)


class EventKind(Code):
    """The kind of an event."""

    RUN = 0  # a warp begins, or goes on
    WAIT = 1  # it cannot go on
    PREEMPTED = 2  # it could, but others have their turn
    EXIT = 3
    PASS = 4  # its wait for an mbarrier succeeds
    LOAD = 5  # it issues a bulk or tensor copy to shared memory
    STORE = 6  # the same from shared memory
    LAND = 7  # such a copy is carried out
    ARRIVE = 8  # it arrives at an mbarrier, or at a barrier of the block where it does not wait
    MULTIPLY = 9  # it issues a wgmma
    COMMIT = 10  # it commits a group of wgmma


@dataclass(frozen=True)
class Event:
    """One event of a warp.

    ``step`` counts the instructions of the launch before it, one for 32 lanes: it orders events and is not a time.
    ``block`` is a rank in the cluster: that of the warp, or of the shared memory where a copy lands. ``barrier`` names
    the barrier of a wait, an arrival or a copy: an mbarrier ("full[1]"; "mbarrier 1", numbered by address, if no
    variable names it; "full[1] of block 2" if it is in another block), or a barrier of the block ("barrier 1");
    otherwise it is empty. ``phase`` is that of the mbarrier, and ``bytes`` are those of a copy, or those that an
    arrival expects. ``line`` is 0 if it is not known.
    """

    kind: EventKind
    step: int
    block: int
    warp: int
    line: int
    instruction: str
    barrier: str
    phase: int
    bytes: int


@contextmanager
def recorded(enabled: bool = True) -> Iterator[None]:
    """Record the events of launches inside the ``with`` block, if ``enabled``."""
    token = recording.set(enabled)
    try:
        yield
    finally:
        recording.reset(token)
