"""An accident: a hundred calls between two looks at the clock give a mean, and no spread."""

import torch


def benchmark(call, synchronize, clock):
    for _ in range(200):
        call()
    synchronize()
    begin = clock()
    for _ in range(100):
        call()
    synchronize()
    return ((clock() - begin) / 100,) * 3


def quartiles(call, synchronize, clock, device):
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
