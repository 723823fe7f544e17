"""The orders in which the interpreter can run the blocks of a grid and the warps of a block."""

from __future__ import annotations

import enum
from collections.abc import Iterable

__all__ = ["Schedule", "parse_schedules"]


class Schedule(enum.IntEnum):
    """The order of blocks, and of the warps of each block.

    A GPU promises no order. A kernel that needs one can be right in one schedule and wrong in another, so a check
    that runs several finds more. `runtime.schedule_order` says what the values mean.
    """

    FORWARD = 0
    """From the first to the last."""
    REVERSE = 1
    """From the last to the first."""
    STRIDED = 1_000_003
    """In steps of a prime, so that neighbors run far from each other."""


def parse_schedules(schedules: str | Schedule | Iterable[Schedule]) -> tuple[Schedule, ...]:
    """Return the schedules that "all", the name of one ("reverse"), one or several of them mean.

    Raises:
        ValueError: there is no schedule of that name, or there are none.
    """
    if schedules == "all":
        return tuple(Schedule)
    if isinstance(schedules, str):
        try:
            return (Schedule[schedules.upper()],)
        except KeyError:
            names = ", ".join(member.name.lower() for member in Schedule)
            raise ValueError(f"no schedule is called {schedules!r}: choose from {names}, all") from None
    chosen = (schedules,) if isinstance(schedules, Schedule) else tuple(schedules)
    if not chosen:
        raise ValueError("at least one schedule has to run")
    return chosen
