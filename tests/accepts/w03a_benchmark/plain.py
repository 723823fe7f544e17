"""A warm-up, then the quartiles of trials that wait for the device."""

import statistics

import torch


def benchmark(call, synchronize, clock):
    for _ in range(200):
        call()
    synchronize()
    times = []
    for _ in range(200):
        begin = clock()
        call()
        synchronize()
        times.append(clock() - begin)
    return tuple(statistics.quantiles(times, n=4))


def quartiles(call, synchronize, clock, device):
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
