"""Benchmark: a timer that convinces a skeptic.

benchmark(call, synchronize, clock) times the work that call() starts on the device. call() only enqueues the work and
returns. synchronize() waits until the queue is empty. clock() returns the time in seconds. On a GPU the three could be

    benchmark(lambda: torch.add(x, y), torch.cuda.synchronize, time.perf_counter)

It returns three times in seconds: a quarter of the calls are faster than the first time, half of the calls are faster
than the second (the median), and three quarters are faster than the third. statistics.quantiles(times, n=4) computes
them from a list. They must be accurate to within 4% on each of these devices, and you may make at most 500 calls per
device:

- a device where every call takes the same time;
- a device where the times of calls vary by up to 20% in either direction, so that a few calls say little about the
  quartiles;
- a device where the first 150 calls take three times longer, because something is compiled and clock rates have to rise
  (report the quartiles of the later calls);
- a device where times vary, and one call in 25 takes ten times longer, because something else interrupts it;
- a device with all of these difficulties together.
"""

from collections.abc import Callable

import torch


def benchmark(
    call: Callable[[], None], synchronize: Callable[[], None], clock: Callable[[], float]
) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile of the times of call(), in seconds."""
    raise NotImplementedError("TODO: warm up, then time call after call")


def quartiles(
    call: Callable[[], None], synchronize: Callable[[], None], clock: Callable[[], float], device: str
) -> torch.Tensor:
    """Return the result of benchmark as a float64 tensor on the device."""
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
