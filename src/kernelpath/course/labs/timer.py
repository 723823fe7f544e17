"""Simulate a device to time: launches return at once, the first calls are slow, calls differ, some are interrupted.

Host and device share a virtual clock, so that no load on the real machine changes a time.

A timer gets the device (call it to launch), its `synchronize` and its `clock`. On a real GPU it could also use
torch.cuda and Python's clocks, so during the call of a submission these return the virtual time, too.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpath.course.labs.virtual import Queue

# The host's time for a launch, a wait and reading the clock.
LAUNCH_SECONDS = 5e-6
SYNCHRONIZE_SECONDS = 5e-6
CLOCK_SECONDS = 1e-7

# The host's time for the first launch on a cold device.
COMPILE_SECONDS = 0.3
# The slowdown of calls while the device is cold, and of interrupted calls.
COLD = 3
INTERRUPTED = 10

# The calls after which the device refuses more. The slow first calls of a cold device in problems/timer are more than
# a quarter of them, so that no timer gets right quartiles without a warm-up.
CALLS_AT_MOST = 500


@dataclass(frozen=True)
class Workload:
    """The duration of each call on the device.

    Attributes:
        seconds: A usual call.
        jitter: Calls are spread evenly between 1 - jitter and 1 + jitter times that.
        cold: The number of slow calls at the start.
        period: One call in so many is interrupted; 0 for none.
    """

    seconds: float
    jitter: float
    cold: int
    period: int

    def duration(self, index: int) -> float:
        """Return the seconds of call `index`, from 0."""
        # Not random, so that the quartiles are known exactly and a right timer never fails by chance.
        position = index * 0.6180339887 % 1  # multiples of the golden ratio are evenly distributed
        slowdown = COLD if index < self.cold else INTERRUPTED if self.period and index % self.period == 7 else 1
        return self.seconds * (1 + self.jitter * (2 * position - 1)) * slowdown

    @property
    def described(self) -> str:
        """Describe its difficulties as the rest of a sentence about a device."""
        troubles = {
            f"whose calls differ by {100 * self.jitter:.0f}% either way": self.jitter,
            f"whose first {self.cold} calls take {COLD} times as long": self.cold,
            f"where one call in {self.period} takes {INTERRUPTED} times as long": self.period,
        }
        return (
            ", ".join(trouble for trouble, is_present in troubles.items() if is_present)
            or "that has none of these problems"
        )

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Return the quartiles of calls that are neither cold nor interrupted, in seconds."""
        lower, median, upper = (self.seconds * (1 + self.jitter * side / 2) for side in (-1, 0, 1))
        return lower, median, upper


def symptom(work: Workload, quartiles: Sequence[float], place: int) -> str:
    """Explain wrong quartiles, given in seconds, of which the one at `place` (0 to 2) is wrong."""
    spread = quartiles[2] - quartiles[0]
    expected_spread = work.quartiles[2] - work.quartiles[0]
    direction = "too long" if quartiles[place] > work.quartiles[place] else "too short"
    if quartiles[2] < work.seconds / 2:
        return "far too short: the clock was read before the device had finished"
    if spread < expected_spread / 2:
        return "spread too small: time many calls, each one separately"
    if spread > 2 * expected_spread and work.cold:
        return f"{direction}: the slow first calls are included; warm up before you start the clock"
    if spread > 2 * expected_spread and work.period:
        return f"{direction}: one long call moves a mean a lot, and a quartile hardly at all"
    return f"{direction}: {'time more calls' if work.jitter else 'is it the time of one call, in seconds?'}"


class Timed(Queue):
    """A device to be timed, and the host's clock. Calling it launches the work."""

    @abstractmethod
    def __call__(self) -> None:
        """Put the next call into the queue. Raises RuntimeError after CALLS_AT_MOST calls."""

    def synchronize(self) -> None:
        """Wait on the host until the queue is empty."""
        self.drain()

    @abstractmethod
    def clock(self) -> float:
        """Return the time of the host's clock, in seconds."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Let the host idle for that long; the device continues."""

    def stand_ins(self) -> Mapping[int, Any]:
        """Replace Python's clocks and time.sleep as well, so that every clock shows the virtual time."""

        def nanoseconds() -> int:
            return round(1e9 * self.clock())

        second_clocks = (time.perf_counter, time.monotonic, time.time)
        nanosecond_clocks = (time.perf_counter_ns, time.monotonic_ns, time.time_ns)
        return {
            **Queue.stand_ins(self),
            **{id(real): self.clock for real in second_clocks},
            **{id(real): nanoseconds for real in nanosecond_clocks},
            # By identity: whatever name a submission has imported a function under, the stand-in takes its place.
            id(time.sleep): self.sleep,
        }


class Device(Timed):
    """A device that works through a queue while the host continues."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self._calls = 0
        self._now = 0.0
        self._idle_at = 0.0

    def __call__(self) -> None:
        if self._calls == CALLS_AT_MOST:
            raise RuntimeError(f"call() was called more than {CALLS_AT_MOST} times; time with fewer calls")
        # Only a cold device compiles, at its first launch.
        self._now += LAUNCH_SECONDS if self._calls or not self.work.cold else COMPILE_SECONDS
        self._idle_at = self.queue_reached() + self.work.duration(self._calls)
        self._calls += 1

    def clock(self) -> float:
        self._now += CLOCK_SECONDS
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def queue_reached(self) -> float:
        return max(self._now, self._idle_at)

    def wait_until(self, moment: float) -> None:
        self._now = max(self._now, moment) + SYNCHRONIZE_SECONDS

    def has_passed(self, moment: float) -> bool:
        return self._now >= moment
