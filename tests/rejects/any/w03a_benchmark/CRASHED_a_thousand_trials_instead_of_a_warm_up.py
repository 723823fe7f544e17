"""An accident: so many trials instead of a warm-up that cold calls do not show."""

import statistics

import torch


def benchmark(call, synchronize, clock):
    times = []
    for _ in range(1000):
        begin = clock()
        call()
        synchronize()
        times.append(clock() - begin)
    return tuple(statistics.quantiles(times, n=4))


def quartiles(call, synchronize, clock, device):
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
