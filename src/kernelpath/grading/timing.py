"""Compute statistics of paired, interleaved timing with a cold L2, and decide when there are enough rounds.

The worker holds a `work.stopwatch.Stopwatch`, which it makes before the submission is imported. The grader holds
everything else: it requests `LOOKS[0]` rounds, then doubles them until the interval of the ratio is settled.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from kernelpath.verdict import Interval

# The numbers of rounds after which a session may stop. They are fixed in advance, so that neither luck nor a slow
# clock shortens a run.
LOOKS = (24, 48, 96, 192)

# The probability that the intervals at all of LOOKS together cover the true median.
CONFIDENCE = 0.99

# The relative difference that the placement of buffers in memory alone can make. Every interval is wider by this
# much.
RESOLUTION = 0.002

Side = Literal["above", "below", "straddles"]


def implementation_order(index: int, implementations: int) -> tuple[int, ...]:
    """Return the order of the implementations in a round: drawn at random, the same draw in every grading.

    Buffers return to the same addresses every few rounds. A rotation could keep in step with that and favor one
    implementation. A draw cannot: of two equal kernels each is the faster one of a round with probability 1/2, and the
    sign test holds whatever drifts (Fisher, The Design of Experiments, chapter III).
    """
    return tuple(random.Random(index).sample(range(implementations), implementations))


def paired_ratio(baseline: Sequence[float], submission: Sequence[float], confidence: float | None = None) -> Interval:
    """Return the median of the paired ratios baseline / submission, with a distribution-free confidence interval.

    The interval lies between two order statistics, as the sign test gives it (Thompson 1936; Conover, Practical
    Nonparametric Statistics, section 3.2): it assumes no shape of the noise. Without `confidence` each look gets its
    share of CONFIDENCE (Bonferroni), so that stopping at any of LOOKS is legitimate. RESOLUTION is added.

    Raises:
        ValueError: The lists have different lengths, a time is not positive, or there are too few.
    """
    if len(baseline) != len(submission):
        raise ValueError(f"{len(baseline)} baseline times are paired with {len(submission)} submission times")
    if not all(0 < seconds < math.inf for seconds in (*baseline, *submission)):
        raise ValueError("a time is not a positive finite number")
    confidence = 1 - (1 - CONFIDENCE) / len(LOOKS) if confidence is None else confidence
    ratios = sorted(slow / fast for slow, fast in zip(baseline, submission, strict=True))
    rank = _rank(len(ratios), confidence)
    # The interval runs from the rank-th least to the rank-th greatest ratio.
    middle = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2
    return Interval(middle, ratios[rank] / (1 + RESOLUTION), ratios[-1 - rank] * (1 + RESOLUTION))


@lru_cache
def _rank(count: int, confidence: float) -> int:
    """Return the largest r for which the r-th least and the r-th greatest of `count` values (from 0) bracket the
    median.
    """
    tail = 0.0
    rank = -1
    # Each ratio is below the true median with probability 1/2. So the number of ratios below it is binomial, and the
    # interval misses the median with twice the probability of its lower tail.
    for successes in range(count // 2):
        tail += math.comb(count, successes) / 2**count
        if 2 * tail > 1 - confidence:
            break
        rank = successes
    if rank < 0:
        raise ValueError(f"{count} rounds are too few for an interval of {confidence:.2%}")
    return rank


def compare_with_gate(interval: Interval, gate: float) -> Side:
    """Return the side of the ratio: "above" at or above the gate, "straddles" where the interval contains the gate."""
    if interval.low >= gate:
        return "above"
    return "below" if interval.high < gate else "straddles"


def is_settled(interval: Interval, gates: Sequence[float], width: float = 0.02) -> bool:
    """Return whether more rounds would change nothing: every gate is decided, and the relative width is small."""
    is_decided = all(compare_with_gate(interval, gate) != "straddles" for gate in gates)
    return is_decided and interval.high <= interval.low * (1 + width)
