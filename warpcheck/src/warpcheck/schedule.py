"""The orders in which the interpreter can run the blocks of a grid and the warps of a block."""

from __future__ import annotations

import enum
from collections.abc import Iterable

__all__ = ["Schedule", "additional_schedules", "parse_schedules"]


class Schedule(enum.IntEnum):
    """The order of blocks, and of the warps of each block.

    A GPU promises no order. A kernel that needs one can be right in one schedule and wrong in another, so a check
    that runs several finds more. `runtime.schedule_order` says what the values mean.
    """

    # From the first to the last.
    FORWARD = 0
    # From the last to the first.
    REVERSE = 1
    # In steps of a prime, so that neighbors run far from each other.
    STRIDED = 1_000_003


def parse_schedules(schedules: str | Schedule | Iterable[str | Schedule]) -> tuple[Schedule, ...]:
    """Return the schedules that "all", a name ("reverse"), a schedule, or several names or schedules mean.

    Raises:
        ValueError: There is no schedule of that name, or there are none.
    """
    if schedules == "all":
        return tuple(Schedule)
    if isinstance(schedules, (str, Schedule)):
        return (_parse_schedule(schedules),)
    chosen = tuple(map(_parse_schedule, schedules))
    if not chosen:
        raise ValueError("at least one schedule has to run")
    return chosen


def _parse_schedule(schedule: str | Schedule) -> Schedule:
    if isinstance(schedule, Schedule):
        return schedule
    try:
        return Schedule[schedule.upper()]
    except (AttributeError, KeyError):
        names = ", ".join(member.name.lower() for member in Schedule)
        raise ValueError(f"no schedule is called {schedule!r}: choose from {names}, all") from None


def additional_schedules(schedules: Iterable[Schedule]) -> tuple[Schedule, ...]:
    """Return the schedules in which a launch runs besides the forward one, whose results count."""
    return tuple(schedule for schedule in schedules if schedule != Schedule.FORWARD)
