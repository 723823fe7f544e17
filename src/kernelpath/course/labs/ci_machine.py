"""Simulate a machine that times two versions of a kernel for a regression gate (w16g_regression_gate).

The machine has the troubles of real ones: cold calls, drift, throttling, interruptions, neighbors, and a difference
between odd and even calls. They slow down both versions alike, so a gate that compares calls close to each other, in a
balanced order, can ignore them. Times come from the seed, and no load on the real machine changes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelpath.course.labs import Lab

# The calls that the machine times for each change.
CALLS_AT_MOST = 400

# The standard deviation of the logarithm of a call's time, without any trouble.
JITTER = 0.015
# The first calls of a change, and their slowdown.
COLD_CALLS = 40
COLD = 3.0

# The relative change of the clock rate over CALLS_AT_MOST calls, up or down.
DRIFT = 0.1

# The slowdown during half of each period of 60 to 140 calls.
THROTTLED = 1.15
# The slowdown of interrupted calls, and their share of all calls.
INTERRUPTED = 10.0
INTERRUPTED_SHARE = 0.04
# The chance at each call that another job arrives on the machine, or leaves it. It costs 10% to 60%.
NEIGHBOR_ARRIVES = 1 / 40
NEIGHBOR_LEAVES = 1 / 10

# The relative difference between even and odd calls, up or down.
ALTERNATING = 0.03

# The slowdown of each of CALLS_AT_MOST calls.
Factors = npt.NDArray[np.float64]

# The troubles that a machine may have, as clauses for a message.
SYMPTOMS: Mapping[str, str] = {
    "cold": f"the first {COLD_CALLS} calls of a change take {COLD:.0f} times as long",
    "drift": f"the clock rate drifts by {100 * DRIFT:.0f}% over {CALLS_AT_MOST} calls",
    "throttling": f"half of the time, for 30 to 70 calls, the GPU throttles by {100 * (THROTTLED - 1):.0f}%",
    "interruptions": f"{100 * INTERRUPTED_SHARE:.0f}% of the calls take {INTERRUPTED:.0f} times as long",
    "neighbors": "other jobs arrive on the machine, stay for about 10 calls, and slow these down by 10% to 60%",
    "alternation": f"odd calls take {100 * ALTERNATING:.0f}% longer than even calls, or even calls than odd ones",
}


@dataclass(frozen=True)
class Change:
    """A change of a kernel, to be judged.

    Attributes:
        seconds: The time of an undisturbed call of the version before the change.
        ratio: The time after the change over the time before it: 1.0 for a change that costs nothing.
        troubles: The troubles of the machine while the change is judged, keys of SYMPTOMS.
    """

    seconds: float
    ratio: float
    troubles: tuple[str, ...] = ()


class CiMachine(Lab):
    """A machine that times calls of the old and of the new version of each of a list of changes, when it is called."""

    def __init__(self, device: str, seed: int, changes: Sequence[Change]) -> None:
        self.device = device
        self.seed = seed
        self.changes = tuple(changes)
        self._calls = [0] * len(self.changes)
        self._slowdowns: dict[int, Factors] = {}

    def __call__(self, change: int, order: str) -> list[float]:
        """Call the versions of a change in this order, and return the seconds of each call.

        Args:
            change: The number of the change, from 0.
            order: "A" for a call of the old version and "B" for one of the new version, such as "ABBA".

        Raises:
            ValueError: There is no such change, the order has other letters, or the calls of this change exceed
                CALLS_AT_MOST.
        """
        if not 0 <= change < len(self.changes):
            raise ValueError(f"there is no change {change}: they are numbered from 0 to {len(self.changes) - 1}")
        if extra := set(order) - {"A", "B"}:
            raise ValueError(f"an order consists of A and B, and not of {min(extra)!r}")
        begin = self._calls[change]
        end = begin + len(order)
        if end > CALLS_AT_MOST:
            raise ValueError(f"more than {CALLS_AT_MOST} calls of one change; decide with fewer")
        self._calls[change] = end
        judged = self.changes[change]
        # Both versions share the slowdowns, as two builds on one machine do. An order such as ABBA can therefore cancel
        # a drift.
        if change not in self._slowdowns:
            self._slowdowns[change] = self._draw_slowdowns(change)
        is_new = np.frombuffer(order.encode(), dtype=np.uint8) == ord("B")
        slowdowns = self._slowdowns[change][begin:end] * np.where(is_new, judged.ratio, 1.0)
        times: list[float] = (judged.seconds * slowdowns).tolist()
        return times

    def _draw_slowdowns(self, change: int) -> Factors:
        """Return the slowdown of each call of a change by the machine, whichever version it calls."""
        # A generator for each change: the times of one do not depend on how often, or in which order, others were
        # called.
        rng = np.random.default_rng([self.seed, change])
        calls = np.arange(CALLS_AT_MOST)
        factors = np.exp(rng.normal(0.0, JITTER, CALLS_AT_MOST))
        for trouble in self.changes[change].troubles:
            factors *= _TROUBLES[trouble](rng, calls)
        return factors


def _cold(rng: np.random.Generator, calls: Any) -> Factors:
    return np.where(calls < COLD_CALLS, COLD, 1.0)


def _drift(rng: np.random.Generator, calls: Any) -> Factors:
    return np.asarray(1.0 + rng.choice([-DRIFT, DRIFT]) * calls / CALLS_AT_MOST)


def _throttling(rng: np.random.Generator, calls: Any) -> Factors:
    period = int(rng.integers(60, 140, endpoint=True))
    phase = int(rng.integers(period))
    return np.where((calls + phase) % period < period // 2, THROTTLED, 1.0)


def _interruptions(rng: np.random.Generator, calls: Any) -> Factors:
    return np.where(rng.random(len(calls)) < INTERRUPTED_SHARE, INTERRUPTED, 1.0)


def _neighbors(rng: np.random.Generator, calls: Any) -> Factors:
    factors = np.ones(len(calls))
    at = 0
    while (arrival := at + int(rng.geometric(NEIGHBOR_ARRIVES))) < len(calls):
        at = arrival + int(rng.geometric(NEIGHBOR_LEAVES))
        factors[arrival:at] = 1.0 + rng.uniform(0.1, 0.6)
    return factors


def _alternation(rng: np.random.Generator, calls: Any) -> Factors:
    return np.where(calls % 2 == 1, 1.0 + rng.choice([-ALTERNATING, ALTERNATING]), 1.0)


_TROUBLES = {
    "cold": _cold,
    "drift": _drift,
    "throttling": _throttling,
    "interruptions": _interruptions,
    "neighbors": _neighbors,
    "alternation": _alternation,
}


def most_compatible(trials: int, rate: float, chance: float) -> int:
    """Return the largest count that is compatible with events of at most this rate.

    A larger count has at most this chance under the binomial distribution of `trials` independent events.

    Args:
        trials: The number of trials.
        rate: The chance of an event in one trial, above 0 and below 1.
        chance: The chance of exceeding the result.
    """
    # Add the upper tail from its far end, where the terms are small, so that none of it is lost to rounding.
    tail = 0.0
    for count in range(trials, -1, -1):
        log_term = (
            math.lgamma(trials + 1)
            - math.lgamma(count + 1)
            - math.lgamma(trials - count + 1)
            + count * math.log(rate)
            + (trials - count) * math.log1p(-rate)
        )
        tail += math.exp(log_term)
        if tail > chance:
            return count
    return 0
