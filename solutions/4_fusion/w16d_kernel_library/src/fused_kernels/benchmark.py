"""Time the functions and PyTorch's own operators: python -m fused_kernels.benchmark."""

import statistics
import time

import torch
import torch.nn.functional as F

import fused_kernels


def measure(function: str, rows: int, columns: int, repeats: int = 5) -> dict[str, float]:
    """Return the median seconds of a function and of PyTorch's operators, and the bytes that must be moved."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, residual = torch.randn(2, rows, columns, device=device).bfloat16()
    weight = torch.randn(columns, device=device).bfloat16()
    if function == "add_rmsnorm":
        calls = [
            lambda: fused_kernels.add_rmsnorm(x, residual, weight),
            lambda: F.rms_norm(x + residual, (columns,), weight, 1e-6),
        ]
        moved = 2 * (4 * rows * columns + columns)
    else:
        calls = [lambda: fused_kernels.swiglu(x), lambda: F.silu(x[:, : columns // 2]) * x[:, columns // 2 :]]
        moved = 2 * (rows * columns + rows * (columns // 2))
    seconds, baseline = (median_seconds(call, repeats, device) for call in calls)
    return {"seconds": seconds, "baseline_seconds": baseline, "bytes": moved}


def median_seconds(call, repeats: int, device: str) -> float:
    """Return the median time of calls with a cold cache. The first call compiles and isn't timed."""
    call()
    times = []
    flush = torch.empty(256 << 20 if device == "cuda" else 0, dtype=torch.uint8, device=device)
    for _ in range(repeats):
        flush.zero_()
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


if __name__ == "__main__":
    for name in ("add_rmsnorm", "swiglu"):
        found = measure(name, 16_384, 8192)
        rate = found["bytes"] / found["seconds"] / 1e9
        print(f"{name:12s} {rate:6.0f} GB/s  {found['baseline_seconds'] / found['seconds']:.2f} of PyTorch's operators")
