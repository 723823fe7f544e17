"""Measure how much faster the PTX machine runs the blocks of a launch on several cores.

    python benchmarks/simt_threads.py [--threads 2] [--rounds 9]

Prints the time of a launch with one thread and with several, and their ratio: for a naive and a tiled GEMM at 256 x 256
x 256, a sum of 1,048,576 elements, and the forward pass of an attention in Triton. The launches with one thread and
with several alternate, and each time is the minimum of all rounds, because other programs on the machine can only add
to it. A launch that is not worth the threads runs on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from simt_kernels import SOURCE

import warpcheck


@triton.jit  # type: ignore[untyped-decorator]
def attention(q, k, v, out, length, scale, BLOCK: tl.constexpr, HEAD: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.arange(0, HEAD)
    base = tl.program_id(1) * length * HEAD
    query = tl.load(q + base + rows[:, None] * HEAD + columns)
    m_i = tl.full((BLOCK,), -float("inf"), tl.float32)
    l_i = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, HEAD), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BLOCK, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        scores = tl.dot(query, tl.load(k + base + keys[None, :] * HEAD + columns[:, None])) * scale
        scores = tl.where(keys[None, :] <= rows[:, None], scores, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        alpha = tl.exp(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        values = tl.load(v + base + keys[:, None] * HEAD + columns)
        acc = acc * alpha[:, None] + tl.dot(p.to(values.dtype), values)
        m_i = m_new
    tl.store(out + base + rows[:, None] * HEAD + columns, (acc / l_i[:, None]).to(out.dtype.element_ty))


def launches() -> dict[str, Callable[[], object]]:
    """Return the launches by name."""
    n = 256
    a, b, c = (torch.rand(n, n) for _ in range(3))
    x, y, z = (torch.rand(1 << 20) for _ in range(3))
    q, k, v, out = (torch.randn(4, 512, 64).half() for _ in range(4))
    kernels = {name: warpcheck.cuda.kernel(SOURCE, name) for name in ("product", "tiled", "add")}
    grid = (n // 16, n // 16)
    return {
        "product": lambda: kernels["product"][grid, (16, 16)](a, b, c, n),
        "tiled": lambda: kernels["tiled"][grid, (16, 16)](a, b, c, n),
        "add": lambda: kernels["add"][(4096,), (256,)](x, y, z, 1 << 20),
        "attention": lambda: attention[(16, 4)](q, k, v, out, 512, 0.125, BLOCK=32, HEAD=64),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="How much faster launches are on several cores.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    for name, launch in launches().items():
        best: dict[int, float] = {}
        for number in range(options.rounds + 1):
            for threads in (1, options.threads):
                with warpcheck.gpu("sm_80", threads=threads):
                    start = time.perf_counter()
                    launch()
                    duration = time.perf_counter() - start
                if number:  # the first launches compile
                    best[threads] = min(duration, best.get(threads, duration))
        single = best[1]
        multi = best[options.threads]
        print(
            f"{name:10} {single * 1e3:7.1f} ms, {options.threads} threads {multi * 1e3:7.1f} ms: {single / multi:.2f}x"
        )


if __name__ == "__main__":
    main()
