"""An accident: no warm-up, and as many trials as there can be to drown the cold calls."""

import statistics

import torch


def benchmark(call, synchronize, clock):
    times = []
    for _ in range(500):
        begin = clock()
        call()
        synchronize()
        times.append(clock() - begin)
    return tuple(statistics.quantiles(times, n=4))


def quartiles(call, synchronize, clock, device):
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
