"""An accident: the first calls, which compile and run at low clocks, are among those that count."""

import statistics

import torch


def benchmark(call, synchronize, clock):
    times = []
    for _ in range(100):
        begin = clock()
        call()
        synchronize()
        times.append(clock() - begin)
    return tuple(statistics.quantiles(times, n=4))


def quartiles(call, synchronize, clock, device):
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
