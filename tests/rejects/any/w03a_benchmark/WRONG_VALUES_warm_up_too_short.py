"""An accident: a warm-up, but a third of what the device needs."""

import statistics

import torch


def benchmark(call, synchronize, clock):
    for _ in range(50):
        call()
    synchronize()
    times = []
    for _ in range(450):
        begin = clock()
        call()
        synchronize()
        times.append(clock() - begin)
    return tuple(statistics.quantiles(times, n=4))


def quartiles(call, synchronize, clock, device):
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
