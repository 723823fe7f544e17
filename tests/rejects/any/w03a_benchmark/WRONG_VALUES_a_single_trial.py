"""An accident: one call after a good warm-up, which says nothing about how calls differ."""

import torch


def benchmark(call, synchronize, clock):
    for _ in range(200):
        call()
    synchronize()
    begin = clock()
    call()
    synchronize()
    return (clock() - begin,) * 3


def quartiles(call, synchronize, clock, device):
    return torch.tensor(benchmark(call, synchronize, clock), dtype=torch.float64, device=device)
