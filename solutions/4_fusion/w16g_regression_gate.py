"""Regression gate: find changes that made a kernel slower.

is_slower(time) judges one change of a kernel. time(order) calls the version before the change, A, and the version after
the change, B, in the given order on the continuous-integration machine, and returns the seconds that each call took on
the device. For example, time("ABBA") returns four numbers. time may be called up to 25 times per change. All orders of
one change together may contain up to 400 kernel calls, which the machine counts from 0.

Times of the same version vary by 1.5% (standard deviation). A kernel takes between 10 µs and 10 ms. The machine may
have any of these disturbances, which affect both versions alike, or all of them:

- the first 40 calls take three times longer;
- the clock rate drifts by 10% over 400 calls, up or down;
- half of the time, for 30 to 70 calls in a row, the GPU throttles and takes 15% longer;
- one call in 25, at random, is interrupted and takes ten times longer;
- other jobs arrive at random, about every 40 calls, stay for about 10 calls, and slow these down by 10% to 60%;
- odd calls take 3% longer than even calls, or even calls take 3% longer than odd calls.

judge returns a decision for each of hundreds of changes, 1 if B is slower. Two rates are graded on each kind of
machine: false alarms, at most 1% of the changes that cost nothing or make the kernel faster; and missed slowdowns, at
most 5% of the changes that make the kernel 2% slower. The grader accepts any counts that a gate with exactly these
rates could reach by chance.

The standard error: the difference in one block varies by 1.5%, like a single call, and the median of 90 blocks by 1.25
/ sqrt(90) of that, or 0.2%. If half of the blocks are disturbed, it is about 0.35%. The threshold of 1% is 3 to 5
standard errors away from 0% and from 2%.
"""

import functools
import math
import statistics
from collections.abc import Callable

import torch

WARM_UP = 40
BLOCKS = 90
THRESHOLD = math.log(1.01)


def is_slower(time: Callable[[str], list[float]]) -> bool:
    """Decide whether version B is slower than version A."""
    times = time("AB" * (WARM_UP // 2) + "ABBA" * BLOCKS)[WARM_UP:]
    # In each block, drift and a difference between odd and even calls cancel, and A and B see the same clock rate and
    # the same neighbors, except for blocks in which something begins or ends. The median ignores these.
    blocks = zip(*(iter(times),) * 4, strict=True)
    differences = [math.log((b1 + b2) / (a1 + a2)) for a1, b1, b2, a2 in blocks]
    return statistics.median(differences) > THRESHOLD


def judge(machine: Callable[[int, str], list[float]], changes: int, device: str) -> torch.Tensor:
    """Return the decision about each change, as an int64 tensor on the device."""
    decisions = [bool(is_slower(functools.partial(machine, change))) for change in range(changes)]
    return torch.tensor(decisions, dtype=torch.int64, device=device)
