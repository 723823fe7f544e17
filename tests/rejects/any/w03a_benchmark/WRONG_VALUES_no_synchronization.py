"""An accident: the clock is read while the device still works, so that launches are timed."""

import statistics

import torch


def benchmark(call, synchronize, clock):
    for _ in range(200):
        call()
    synchronize()
    times = []
    for _ in range(100):
        begin = clock()
        call()
        times.append(clock() - begin)
    return tuple(statistics.quantiles(times, n=4))


def quartiles(call, synchronize, clock, device):
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
