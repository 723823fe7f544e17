"""As triton.testing.do_bench works: an estimate first, warm-up and repetitions from it, then torch.quantile."""

import torch


def do_bench(call, synchronize, clock, warmup=1.0, rep=0.6):
    call()
    synchronize()
    begin = clock()
    for _ in range(5):
        call()
    synchronize()
    estimate = (clock() - begin) / 5
    n_warmup, n_repeat = max(160, min(200, int(warmup / estimate))), max(200, min(250, int(rep / estimate)))
    for _ in range(n_warmup):
        call()
    synchronize()
    times = torch.empty(n_repeat, dtype=torch.float64)
    for i in range(n_repeat):
        start = clock()
        call()
        synchronize()
        times[i] = clock() - start
    return torch.quantile(times, torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))


def quartiles(call, synchronize, clock, device):
    return do_bench(call, synchronize, clock).to(device)
