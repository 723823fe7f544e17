"""An accident: quartiles of a bell curve through mean and deviation, which interrupted calls move far."""

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
        synchronize()
        times.append(clock() - begin)
    mean, deviation = statistics.mean(times), statistics.stdev(times)
    return mean - 0.674 * deviation, mean, mean + 0.674 * deviation


def quartiles(call, synchronize, clock, device):
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
