"""Times and bytes."""

import time

import torch
import torch.nn.functional as F

from . import add_rmsnorm, swiglu


def measure(function, rows, columns):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, weight = torch.randn(rows, columns, device=device).bfloat16(), torch.randn(columns, device=device).bfloat16()
    if function == "swiglu":
        calls = lambda: swiglu(x), lambda: F.silu(x[:, ::2]) * x[:, 1::2]
        moved = x.nbytes * 3 // 2
    else:
        calls = lambda: add_rmsnorm(x, x, weight), lambda: F.rms_norm(x + x, (columns,), weight)
        moved = 4 * x.nbytes + weight.nbytes
    return {"seconds": clock(calls[0]), "baseline_seconds": clock(calls[1]), "bytes": moved}


def clock(call, calls=3):
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls
