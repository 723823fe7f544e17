"""Run functions of a notebook on several ranks, as submissions run, count them, and draw them on simulated links."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from kernelpath.course import registry
from kernelpath.course.labs.fabric import Links, Timeline
from kernelpath.grading.graders.distributed import GroupResult, run_group, split_rows
from kernelpath.show.palette import INK, OTHERS, ROLES, UNUSED
from kernelpath.work.host import Worker
from kernelpath.work.rank_runners import RankRunners
from kernelpath.work.workspace import Workspace

_HEAD = "import torch\nimport torch.distributed as dist\n\n\n"
_COLORS = {"compute": ROLES["baseline"], "wait": UNUSED, "send": OTHERS[1], "all_reduce": ROLES["reference"]}


def run(
    function: Callable[..., Any],
    *inputs: Any,
    world: int,
    collectives: Sequence[str] = (),
) -> GroupResult:
    """Call a function of the notebook on `world` ranks, each in a process of its own.

    Errors are reported as the result's complaint.

    Args:
        inputs: Tensors of which each rank gets its row, and fabric.Layers, which every rank gets as layers.
        collectives: The functions of torch.distributed that it may call.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ranks.py"
        # The source of the function lacks the imports of the notebook.
        file.write_text(_HEAD + inspect.getsource(function), encoding="utf-8")
        workspace = Workspace.reserve(file)
        copied = workspace.copy(alone=True)
        # Any exercise on several ranks will do: `entry` names the notebook's function.
        item = registry.find("all_reduce")

        def start(rank: int) -> Worker:
            worker = Worker(workspace.of_rank(rank))
            worker.start(str(item.root), item.path_id, "cpu", None, entry=function.__name__)
            return worker

        ranks = RankRunners(start, copied.file, [])
        try:
            return run_group(ranks, split_rows(inputs, world), collectives)
        finally:
            ranks.close()
            workspace.clean(keep=False)


def told(ran: GroupResult) -> str:
    """Return the outcome of a call as one line."""
    return f"{ran.finding.verdict.value}: {ran.finding.cause}" if ran.finding else "every rank returned"


def draw(timelines: Mapping[str, Timeline]) -> Figure:
    """Draw the activities of every rank over time in µs, one panel for each label, all with the same scale.

    A rank has two rows: its program above, its messages or collectives below.
    """
    ranks = [max((span.rank for span in timeline.spans), default=0) + 1 for timeline in timelines.values()]
    figure = Figure(figsize=(5.6, 0.4 * sum(ranks) + 0.9 * len(ranks)), layout="constrained")
    panels = figure.subplots(len(timelines), 1, sharex=True, squeeze=False, height_ratios=ranks)[:, 0]
    kinds = dict.fromkeys(span.kind for timeline in timelines.values() for span in timeline.spans)
    for axes, (label, timeline), count in zip(panels, timelines.items(), ranks, strict=True):
        for span in timeline.spans:
            row = span.rank + (0.0 if span.kind in ("compute", "wait") else 0.42)
            width = 1e6 * (span.end - span.begin)
            axes.broken_barh(
                [(1e6 * span.begin, width)], (row - 0.2, 0.38), facecolor=_COLORS.get(span.kind), edgecolor="white"
            )
        axes.set_yticks([rank + 0.2 for rank in range(count)], [f"rank {rank}" for rank in range(count)], fontsize=8)
        axes.set_ylim(count - 0.3, -0.3)
        axes.set_title(f"{label}: {1e6 * timeline.end:,.1f} µs", fontsize=9, color=INK, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("µs", fontsize=8)
    figure.legend(
        handles=[Patch(color=_COLORS.get(kind), label=kind) for kind in kinds],
        loc="outside upper right",
        ncols=len(kinds),
        fontsize=8,
        frameon=False,
    )
    return figure


def measured(experiment: str, **environment: str) -> Any:
    """Return what benchmarks/all_reduce.py measures on this machine's GPUs: its "map", "all_reduce" or "overlap"."""
    program = registry.course() / "benchmarks" / "all_reduce.py"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = subprocess.run(
        [sys.executable, str(program), experiment],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(process.stdout.splitlines()[-1])[experiment]


def seconds(links: Links, size: int) -> float:
    """Return the duration of a message of `size` bytes."""
    return links.latency + size / links.bandwidth


def fitted(microseconds: Mapping[int, float], small: int, large: int) -> Links:
    """Fit links through two times, which are in µs by bytes."""
    # Two points determine a line: the slope is the inverse of the bandwidth, the intercept the latency.
    bandwidth = (large - small) / (microseconds[large] - microseconds[small]) * 1e6
    return Links(latency=microseconds[small] / 1e6 - small / bandwidth, bandwidth=bandwidth)


def half_bandwidth(links: Links) -> float:
    """Return the message size in bytes that reaches half of the bandwidth."""
    return links.latency * links.bandwidth


def ring_seconds(links: Links, world: int, size: int) -> float:
    """Return the duration of a ring all-reduce of `size` bytes, in which each step waits for the one before."""
    return 2 * (world - 1) * seconds(links, size // world)


def two_shot_seconds(links: Links, world: int, size: int) -> float:
    """Return the duration of a two-shot all-reduce: two steps, each with a message to every peer through one port."""
    return 2 * seconds(links, (world - 1) * size // world)


def one_shot_seconds(links: Links, world: int, size: int) -> float:
    """Return the duration of a one-shot all-reduce: the whole vector to every peer through one port."""
    return seconds(links, (world - 1) * size)


def crossover(links: Links, world: int) -> float:
    """Return the size in bytes up to which one shot is faster than two."""
    # The size at which one_shot_seconds and two_shot_seconds are equal.
    return links.latency * links.bandwidth / ((world - 1) * (1 - 2 / world))


def peak(links: int, each: float) -> float:
    """Return the GB/s of `links` parallel links."""
    return links * each
