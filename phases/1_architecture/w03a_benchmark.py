"""Benchmark: a timer that convinces a skeptic.

benchmark(call, synchronize, clock) times the work that call() starts on the device. call() only enqueues the work and
returns. synchronize() waits until the queue is empty. clock() returns the time in seconds. On a GPU the three could be

    benchmark(lambda: torch.add(x, y), torch.cuda.synchronize, time.perf_counter)

It returns three numbers in seconds: a quarter of the calls are faster than the first, half of them faster than the
second (the median), three quarters faster than the third. statistics.quantiles(times, n=4) computes them from a list.
They must be right within 4% on each of these devices, and no device may be called more than 500 times:

- one where every call takes the same time;
- one where calls differ by up to 20% either way, so that a few calls say little about the quartiles;
- one where the first 150 calls take three times longer, because something is compiled and clock rates have to rise.
  Report the quartiles of the later calls;
- one where calls differ, and one in 25 takes ten times longer, because something else interrupts;
- one with all of these troubles together.
"""

from collections.abc import Callable

import torch


def benchmark(
    call: Callable[[], None], synchronize: Callable[[], None], clock: Callable[[], float]
) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile of the time of call(), in seconds."""
    raise NotImplementedError("TODO: warm up, then time call after call")


def quartiles(
    call: Callable[[], None], synchronize: Callable[[], None], clock: Callable[[], float], device: str
) -> torch.Tensor:
    """What benchmark returns, as a float64 tensor on the device."""
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
