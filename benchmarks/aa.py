"""Run an A/A test: how often does the grader call the same kernel, on both sides, faster or slower?

    python benchmarks/aa.py --runs 100 --json results/h200_aa.json

The grader promises at most 1 run in 100. Each run is one grading: fresh buffers at other addresses, rounds as the
grader takes them, and one verdict.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import machine

from kernelpath.grading.timing import LOOKS, implementation_order, is_settled, paired_ratio
from kernelpath.work.stopwatch import Stopwatch

Kernel = Callable[[torch.Tensor], object]

# Launches in a graph, for kernels under 20 µs.
LAUNCHES = 20

KERNELS: dict[str, tuple[Kernel, tuple[int, ...], bool]] = {
    "gelu, 16 MiB, as a graph": (torch.nn.functional.gelu, (2048, 4096), True),
    "gelu, 128 MiB": (torch.nn.functional.gelu, (16_384, 4096), False),
    "row sums, 128 MiB": (lambda x: x.sum(dim=1), (16_384, 4096), False),
    "softmax, 128 MiB": (lambda x: torch.softmax(x, dim=1), (8192, 8192), False),
    "matrix product, 4096": (lambda x: x @ x, (4096, 4096), False),
}


def contestants(stopwatch: Stopwatch, kernel: Kernel, sets: list[torch.Tensor], graph: bool) -> list[Kernel]:
    """Return the kernel twice: as two functions of an input set, or as two graphs over all sets."""
    if not graph:
        return [kernel, kernel]
    replays = [stopwatch.graph(lambda index: kernel(sets[index % len(sets)]), LAUNCHES) for _ in range(2)]
    return [partial(_replay, replay) for replay in replays]


def _replay(replay: Callable[[], Any], _: torch.Tensor) -> Any:
    return replay()


def time_run(stopwatch: Stopwatch, kernel: Kernel, shape: tuple[int, ...], graph: bool) -> dict[str, Any]:
    """Time one run. Return the verdict "faster", "slower" or "equal", the interval, and the autocorrelation."""
    padding = [torch.empty(random.randrange(1 << 26), dtype=torch.uint8, device=stopwatch.device) for _ in range(3)]
    sets = [torch.randn(shape, dtype=torch.bfloat16, device=stopwatch.device) for _ in range(10 if graph else 3)]
    del padding[1]
    pair = contestants(stopwatch, kernel, sets, graph)
    seconds: list[tuple[float, float]] = []
    for look in LOOKS:
        for index in range(len(seconds), look):
            turn = implementation_order(index, 2)
            timed, _ = stopwatch.round([partial(pair[side], sets[index % len(sets)]) for side in turn])
            seconds.append((timed[turn.index(0)], timed[turn.index(1)]))
        baseline, submission = map(list, zip(*seconds, strict=True))
        ratio = paired_ratio(baseline, submission)
        if is_settled(ratio, [1.0]):
            break
    logs = np.log(np.divide(baseline, submission))
    return {
        "verdict": "faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "equal",
        "interval": [round(bound, 6) for bound in (ratio.low, ratio.median, ratio.high)],
        "seconds": round(float(np.median(submission)) / (LAUNCHES if graph else 1), 10),
        "rounds": len(seconds),
        "autocorrelation": round(float(np.corrcoef(logs[:-1], logs[1:])[0, 1]), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="runs of each kernel")
    parser.add_argument("--json", type=Path, help="where the results go")
    options = parser.parse_args()
    stopwatch = Stopwatch()
    began = time.monotonic()
    results = {
        name: [time_run(stopwatch, *what) for _ in range(options.runs + 1)][1:] for name, what in KERNELS.items()
    }
    print(f"{'kernel':<26}{'runs':>6}{'µs':>9}{'faster':>8}{'slower':>8}{'half-width':>12}{'autocorr.':>11}")
    for name, runs in results.items():
        verdicts = [run["verdict"] for run in runs]
        half = np.median([run["interval"][2] - run["interval"][0] for run in runs]) / 2
        print(
            f"{name:<26}{len(runs):>6}{np.median([run['seconds'] for run in runs]) * 1e6:>9.1f}"
            f"{verdicts.count('faster'):>8}{verdicts.count('slower'):>8}{half:>12.2%}"
            f"{np.mean([run['autocorrelation'] for run in runs]):>11.3f}"
        )
    total = [run["verdict"] for runs in results.values() for run in runs]
    print(f"{len(total) - total.count('equal')} false calls in {len(total)} runs, {time.monotonic() - began:.0f} s")
    if options.json:
        options.json.write_text(json.dumps({**machine(stopwatch), "a_a": results}))


if __name__ == "__main__":
    main()
