"""How long every configuration of one Triton kernel takes at many sizes: what w09c_autotune is graded with.

    python benchmarks/tuning.py --json src/kernelpath/course/records/tuning.json

The kernel adds a product to what is in memory, c += a @ w.T, as a layer's weight gradient is accumulated. Cold L2,
medians over rounds that go through all configurations. What needs more shared memory than a block may have has no time.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

SPACE = {
    "BLOCK_M": (16, 64, 128),
    "BLOCK_N": (64, 128, 256),
    "BLOCK_K": (64, 128),
    "SPLIT_K": (1, 4),
    "num_warps": (4, 8),
    "num_stages": (3, 5),
}
ROWS = (16, 17, 24, 31, 48, 64, 100, 128, 200, 256, 391, 512, 777, 1024, 1500, 2048, 3000, 4096)
# Columns of c (N) and length of the sums (K).
LAYERS = ((1024, 4096), (4096, 4096), (4096, 11008), (2880, 2880))

SIZES = [("float16", m, n, k) for n, k in LAYERS for m in ROWS] + [
    ("float32", m, n, k) for n, k in LAYERS for m in (16, 256, 2048)
]
MOST_SHARED = 232_448


@triton.jit(do_not_specialize=["M", "size_class"])  # type: ignore[untyped-decorator]
def accumulate(  # type: ignore[no-untyped-def]
    a, w, c, M, N, K, size_class,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """c += a @ w.T: a (M, K), w (N, K), c (M, N) float32. Nothing masks K."""
    rows = tl.program_id(0) % tl.cdiv(M, BLOCK_M) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) // tl.cdiv(M, BLOCK_M) * BLOCK_N + tl.arange(0, BLOCK_N)
    share = K // SPLIT_K
    steps = tl.program_id(1) * share + tl.arange(0, BLOCK_K)
    a_tile = a + rows[:, None] * K + steps[None, :]
    w_tile = w + columns[None, :] * K + steps[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(share // BLOCK_K):
        left = tl.load(a_tile, mask=rows[:, None] < M, other=0.0)
        right = tl.load(w_tile, mask=columns[None, :] < N, other=0.0)
        total = tl.dot(left, right, total)
        a_tile += BLOCK_K
        w_tile += BLOCK_K
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.atomic_add(c + rows[:, None] * N + columns[None, :], total, mask=inside, sem="relaxed")


# A value for each of SPACE.
Configuration = tuple[int, ...]


def named(configuration: Configuration) -> dict[str, int]:
    return dict(zip(SPACE, configuration, strict=True))


def compiled(task: tuple[str, Configuration]) -> tuple[str, Configuration, int, float]:
    """Dtype, configuration, bytes of shared memory, seconds. Fills Triton's cache."""
    dtype, configuration = task
    begin = time.perf_counter()
    given = getattr(torch, dtype)
    kernel = accumulate.warmup(given, given, torch.float32, 4096, 4096, 4096, 4096, grid=(1,), **named(configuration))
    return dtype, configuration, kernel.metadata.shared, time.perf_counter() - begin


def grid_of(m: int, n: int, one: dict[str, int]) -> tuple[int, int]:
    return triton.cdiv(m, one["BLOCK_M"]) * triton.cdiv(n, one["BLOCK_N"]), one["SPLIT_K"]


class Timer:
    """Times on this GPU, with an L2 that holds nothing of the operands."""

    def __init__(self) -> None:
        self.flush = torch.empty(512 << 18, dtype=torch.int32, device="cuda")

    def size(
        self, dtype: str, m: int, n: int, k: int, configurations: list[Configuration], rounds: int
    ) -> tuple[list[float], list[Configuration]]:
        """Microseconds of each configuration, and those whose result is wrong."""
        a, w = (torch.randn(rows, k, device="cuda", dtype=getattr(torch, dtype)) for rows in (m, n))
        c = torch.zeros(m, n, device="cuda")
        truth = a.float() @ w.float().T
        off = []

        def launch(one: dict[str, int]) -> None:
            accumulate[grid_of(m, n, one)](a, w, c, m, n, k, m, **one)

        for configuration in configurations:
            c.zero_()
            launch(named(configuration))
            off.append((c - truth).abs().max())
        limit = 0.05 * truth.abs().max()
        wrong = [one for one, far in zip(configurations, torch.stack(off) > limit, strict=True) if far]
        spans: list[list[tuple[Any, Any]]] = [[] for _ in configurations]
        for _ in range(rounds):
            for place, configuration in enumerate(configurations):
                self.flush.zero_()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                launch(named(configuration))
                end.record()
                spans[place].append((begin, end))
        torch.cuda.synchronize()
        return [1e3 * statistics.median(x.elapsed_time(y) for x, y in pairs) for pairs in spans], wrong

    def do_bench(self, m: int, n: int, k: int) -> float:
        """Seconds that triton.testing.do_bench takes for one configuration."""
        one = named((64, 128, 64, 1, 4, 3))
        a, w = (torch.randn(rows, k, device="cuda", dtype=torch.float16) for rows in (m, n))
        c = torch.zeros(m, n, device="cuda")
        begin = time.perf_counter()
        triton.testing.do_bench(lambda: accumulate[grid_of(m, n, one)](a, w, c, m, n, k, m, **one))
        return time.perf_counter() - begin


@contextlib.contextmanager
def lock(path: str | None) -> Iterator[None]:
    """Whoever has locked this file has the GPU."""
    with open(path, "w") if path else contextlib.nullcontext() as file:
        if file is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def record(workers: int, rounds: int, path: str | None = None, seconds: float = 1e9) -> dict[str, Any]:
    """The whole table, or what of it can be had in so many seconds."""
    began = time.perf_counter()
    space = [*itertools.product(*SPACE.values())]
    tasks = [(dtype, one) for dtype in ("float16", "float32") for one in space]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        made = [*pool.map(compiled, tasks, chunksize=4)]
    print(f"compiled {len(made)} in {time.perf_counter() - began:.0f} s", flush=True)
    shared = {(dtype, one): nbytes for dtype, one, nbytes, _ in made}
    took = [each for *_, each in made]
    table: list[dict[str, Any]] = []
    wrongs: list[tuple[Any, ...]] = []
    timer: Timer | None = None
    for group in [SIZES[start : start + 6] for start in range(0, len(SIZES), 6)]:
        if time.perf_counter() - began > seconds:
            print(f"out of time: {len(table)} of {len(SIZES)} sizes", flush=True)
            break
        with lock(path):
            timer = timer or Timer()
            for dtype, m, n, k in group:
                fits = [one for one in space if shared[dtype, one] <= MOST_SHARED]
                micros, wrong = timer.size(dtype, m, n, k, fits, rounds if m < 1500 else (rounds + 1) // 2)
                by_place = dict(zip(fits, micros, strict=True))
                table.append({
                    "dtype": dtype, "M": m, "N": n, "K": k,
                    "microseconds": [round(by_place[one], 2) if one in by_place else None for one in space],
                })  # fmt: skip
                wrongs += [(dtype, m, n, k, one) for one in fits if (one in wrong) != (k % (one[2] * one[3]) != 0)]
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    assert timer is not None
    with lock(path):
        bench = {f"{m}x{n}x{k}": timer.do_bench(m, n, k) for m, n, k in ((16, 4096, 4096), (4096, 4096, 4096))}
    print("neither right nor wrong as K says:", wrongs[:20], len(wrongs), flush=True)
    return {
        "gpu": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "triton": triton.__version__},
        "space": SPACE,
        "shared": {dtype: [shared[dtype, one] for one in space] for dtype in ("float16", "float32")},
        "compile_seconds": round(statistics.median(took), 3),
        "do_bench_seconds": {name: round(value, 3) for name, value in bench.items()},
        "sizes": table,
    }


def summary(found: dict[str, Any]) -> None:
    """The best of each size, and how much slower the best of others is there."""
    space = [*itertools.product(*found["space"].values())]
    best = {}
    for one in found["sizes"]:
        us = one["microseconds"]
        right = [i for i, t in enumerate(us) if t is not None and one["K"] % (space[i][2] * space[i][3]) == 0]
        place = min(right, key=lambda i: us[i])
        best[one["dtype"], one["M"], one["N"], one["K"]] = place
        fast = min((t, i) for i, t in enumerate(us) if t is not None)
        note = "" if fast[1] in right else f"  wrong but fastest: {space[fast[1]]} {fast[0]:.1f}"
        close = sum(us[i] <= 1.05 * us[place] for i in right)
        worst = max(us[i] for i in right) / us[place]
        size = f"{one['dtype']:8}{one['M']:6}{one['N']:6}{one['K']:6}"
        print(f"{size} {us[place]:8.1f} µs {space[place]} {close} within 5 % of {len(right)}, worst {worst:.1f}{note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--lock")
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()
    found = record(args.workers, args.rounds, args.lock, args.seconds)
    args.json.write_text(json.dumps(found, separators=(",", ":")))
    summary(found)
    print({key: found[key] for key in ("gpu", "versions", "compile_seconds", "do_bench_seconds")})


if __name__ == "__main__":
    main()
