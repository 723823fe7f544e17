"""Measure every configuration of one Triton kernel at many sizes, for the grading of w09c_autotune.

    python benchmarks/tuning.py --json src/kernelpath/course/records/tuning.json

The kernel adds a product to memory, c += a @ w.T, as a layer accumulates its weight gradient. The L2 is cold, and times
are medians over rounds through all configurations. Configurations that need more shared memory than a block may have
get no time.
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
# The columns of c (N) and the length of the sums (K).
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
    """Add a @ w.T to c: a (M, K), w (N, K), c (M, N) float32. Nothing masks K."""
    rows = tl.program_id(0) % tl.cdiv(M, BLOCK_M) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) // tl.cdiv(M, BLOCK_M) * BLOCK_N + tl.arange(0, BLOCK_N)
    share = K // SPLIT_K
    steps = tl.program_id(1) * share + tl.arange(0, BLOCK_K)
    a_tile = a + rows[:, None] * K + steps[None, :]
    w_tile = w + columns[None, :] * K + steps[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(share // BLOCK_K):
        a_values = tl.load(a_tile, mask=rows[:, None] < M, other=0.0)
        w_values = tl.load(w_tile, mask=columns[None, :] < N, other=0.0)
        acc = tl.dot(a_values, w_values, acc)
        a_tile += BLOCK_K
        w_tile += BLOCK_K
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.atomic_add(c + rows[:, None] * N + columns[None, :], acc, mask=inside, sem="relaxed")


# One value for each parameter of SPACE.
Configuration = tuple[int, ...]


def as_keywords(configuration: Configuration) -> dict[str, int]:
    return dict(zip(SPACE, configuration, strict=True))


def compile_configuration(task: tuple[str, Configuration]) -> tuple[str, Configuration, int, float]:
    """Compile into Triton's cache. Return dtype, configuration, bytes of shared memory, and seconds."""
    dtype, configuration = task
    begin = time.perf_counter()
    operand_dtype = getattr(torch, dtype)
    kernel = accumulate.warmup(
        operand_dtype, operand_dtype, torch.float32, 4096, 4096, 4096, 4096, grid=(1,), **as_keywords(configuration)
    )
    return dtype, configuration, kernel.metadata.shared, time.perf_counter() - begin


def grid_of(m: int, n: int, keywords: dict[str, int]) -> tuple[int, int]:
    return triton.cdiv(m, keywords["BLOCK_M"]) * triton.cdiv(n, keywords["BLOCK_N"]), keywords["SPLIT_K"]


class Timer:
    """Measure times on this GPU, with an L2 cache that holds none of the operands."""

    def __init__(self) -> None:
        self.flush = torch.empty(512 << 18, dtype=torch.int32, device="cuda")

    def size(
        self, dtype: str, m: int, n: int, k: int, configurations: list[Configuration], rounds: int
    ) -> tuple[list[float], list[Configuration]]:
        """Return the microseconds of each configuration, and the configurations whose result is wrong."""
        a, w = (torch.randn(rows, k, device="cuda", dtype=getattr(torch, dtype)) for rows in (m, n))
        c = torch.zeros(m, n, device="cuda")
        truth = a.float() @ w.float().T
        errors = []

        def launch(keywords: dict[str, int]) -> None:
            accumulate[grid_of(m, n, keywords)](a, w, c, m, n, k, m, **keywords)

        for configuration in configurations:
            c.zero_()
            launch(as_keywords(configuration))
            errors.append((c - truth).abs().max())
        limit = 0.05 * truth.abs().max()
        wrong = [item for item, is_wrong in zip(configurations, torch.stack(errors) > limit, strict=True) if is_wrong]
        spans: list[list[tuple[Any, Any]]] = [[] for _ in configurations]
        for _ in range(rounds):
            for place, configuration in enumerate(configurations):
                self.flush.zero_()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                launch(as_keywords(configuration))
                end.record()
                spans[place].append((begin, end))
        torch.cuda.synchronize()
        return [1e3 * statistics.median(x.elapsed_time(y) for x, y in pairs) for pairs in spans], wrong

    def do_bench(self, m: int, n: int, k: int) -> float:
        """Return the seconds that triton.testing.do_bench takes for one configuration."""
        keywords = as_keywords((64, 128, 64, 1, 4, 3))
        a, w = (torch.randn(rows, k, device="cuda", dtype=torch.float16) for rows in (m, n))
        c = torch.zeros(m, n, device="cuda")
        begin = time.perf_counter()
        triton.testing.do_bench(lambda: accumulate[grid_of(m, n, keywords)](a, w, c, m, n, k, m, **keywords))
        return time.perf_counter() - begin


@contextlib.contextmanager
def lock(path: str | None) -> Iterator[None]:
    """Hold an exclusive lock on this file, which stands for the GPU."""
    with open(path, "w") if path else contextlib.nullcontext() as file:
        if file is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def record(workers: int, rounds: int, path: str | None = None, seconds: float = 1e9) -> dict[str, Any]:
    """Return the whole table, or the part of it that can be measured in so many seconds."""
    began = time.perf_counter()
    space = [*itertools.product(*SPACE.values())]
    tasks = [(dtype, configuration) for dtype in ("float16", "float32") for configuration in space]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        compilations = [*pool.map(compile_configuration, tasks, chunksize=4)]
    print(f"compiled {len(compilations)} in {time.perf_counter() - began:.0f} s", flush=True)
    shared = {(dtype, configuration): nbytes for dtype, configuration, nbytes, _ in compilations}
    took = [duration for *_, duration in compilations]
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
                fits = [configuration for configuration in space if shared[dtype, configuration] <= MOST_SHARED]
                micros, wrong = timer.size(dtype, m, n, k, fits, rounds if m < 1500 else (rounds + 1) // 2)
                by_place = dict(zip(fits, micros, strict=True))
                table.append({
                    "dtype": dtype, "M": m, "N": n, "K": k,
                    "microseconds": [round(by_place[entry], 2) if entry in by_place else None for entry in space],
                })  # fmt: skip
                wrongs += [
                    (dtype, m, n, k, configuration)
                    for configuration in fits
                    if (configuration in wrong) != (k % (configuration[2] * configuration[3]) != 0)
                ]
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
        "shared": {
            dtype: [shared[dtype, configuration] for configuration in space] for dtype in ("float16", "float32")
        },
        "compile_seconds": round(statistics.median(took), 3),
        "do_bench_seconds": {name: round(value, 3) for name, value in bench.items()},
        "sizes": table,
    }


def print_summary(table: dict[str, Any]) -> None:
    """Print the best configuration of each size, and how much slower the others are there."""
    space = [*itertools.product(*table["space"].values())]
    best = {}
    for row in table["sizes"]:
        us = row["microseconds"]
        right = [i for i, t in enumerate(us) if t is not None and row["K"] % (space[i][2] * space[i][3]) == 0]
        place = min(right, key=lambda i: us[i])
        best[row["dtype"], row["M"], row["N"], row["K"]] = place
        fast = min((t, i) for i, t in enumerate(us) if t is not None)
        note = "" if fast[1] in right else f"  wrong but fastest: {space[fast[1]]} {fast[0]:.1f}"
        close = sum(us[i] <= 1.05 * us[place] for i in right)
        worst = max(us[i] for i in right) / us[place]
        size = f"{row['dtype']:8}{row['M']:6}{row['N']:6}{row['K']:6}"
        print(f"{size} {us[place]:8.1f} µs {space[place]} {close} within 5 % of {len(right)}, worst {worst:.1f}{note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--lock")
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()
    table = record(args.workers, args.rounds, args.lock, args.seconds)
    args.json.write_text(json.dumps(table, separators=(",", ":")))
    print_summary(table)
    print({key: table[key] for key in ("gpu", "versions", "compile_seconds", "do_bench_seconds")})


if __name__ == "__main__":
    main()
