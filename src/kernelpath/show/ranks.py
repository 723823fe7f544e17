"""Functions of a notebook on several ranks: run as submissions are, counted, and drawn on simulated links."""

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
from kernelpath.grading.kinds.distributed import GroupResult, run_group, split_rows
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

    inputs: each rank is given its row of every tensor, and fabric.Layers as layers. collectives: those of
    torch.distributed that it may call. What goes wrong is the result's complaint.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ranks.py"
        file.write_text(_HEAD + inspect.getsource(function), encoding="utf-8")
        workspace = Workspace.reserve(file)
        copied = workspace.copy(alone=True)
        item = registry.find("all_reduce")

        def start(rank: int) -> Worker:
            worker = Worker(workspace.of_rank(rank))
            worker.start(str(item.root), item.stem, "cpu", None, entry=function.__name__)
            return worker

        ranks = RankRunners(start, copied.file, [])
        try:
            return run_group(ranks, split_rows(inputs, world), collectives)
        finally:
            ranks.close()
            workspace.clean(keep=False)


def told(ran: GroupResult) -> str:
    """How a call ended, in a line."""
    return f"{ran.finding.verdict.value}: {ran.finding.cause}" if ran.finding else "every rank returned"


def draw(timelines: Mapping[str, Timeline]) -> Figure:
    """What every rank does, over time in µs; a panel for each label, all with one scale.

    A rank has two rows: its program above, its messages or collectives below.
    """
    ranks = [max((span.rank for span in one.spans), default=0) + 1 for one in timelines.values()]
    figure = Figure(figsize=(5.6, 0.4 * sum(ranks) + 0.9 * len(ranks)), layout="constrained")
    panels = figure.subplots(len(timelines), 1, sharex=True, squeeze=False, height_ratios=ranks)[:, 0]
    kinds = dict.fromkeys(span.kind for one in timelines.values() for span in one.spans)
    for axes, (label, one), count in zip(panels, timelines.items(), ranks, strict=True):
        for span in one.spans:
            row = span.rank + (0.0 if span.kind in ("compute", "wait") else 0.42)
            width = 1e6 * (span.end - span.begin)
            axes.broken_barh(
                [(1e6 * span.begin, width)], (row - 0.2, 0.38), facecolor=_COLORS.get(span.kind), edgecolor="white"
            )
        axes.set_yticks([rank + 0.2 for rank in range(count)], [f"rank {rank}" for rank in range(count)], fontsize=8)
        axes.set_ylim(count - 0.3, -0.3)
        axes.set_title(f"{label}: {1e6 * one.end:,.1f} µs", fontsize=9, color=INK, loc="left")
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


def measured(what: str, **environment: str) -> Any:
    """What benchmarks/all_reduce.py finds on the GPUs of this machine: its "map", "all_reduce" or "overlap"."""
    program = registry.course() / "benchmarks" / "all_reduce.py"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, str(program), what],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(done.stdout.splitlines()[-1])[what]


def seconds(links: Links, size: int) -> float:
    """Of a message of so many bytes."""
    return links.latency + size / links.bandwidth


def fitted(taken: Mapping[int, float], small: int, large: int) -> Links:
    """The line through two of the times, in µs by bytes."""
    bandwidth = (large - small) / (taken[large] - taken[small]) * 1e6
    return Links(latency=taken[small] / 1e6 - small / bandwidth, bandwidth=bandwidth)


def half_bandwidth(links: Links) -> float:
    """Bytes of the message that reaches half of the bandwidth."""
    return links.latency * links.bandwidth


def ring_seconds(links: Links, world: int, size: int) -> float:
    """Of an all-reduce of so many bytes as a ring: each step moves a chunk and waits for the one before."""
    return 2 * (world - 1) * seconds(links, size // world)


def two_shot_seconds(links: Links, world: int, size: int) -> float:
    """In two steps, each with a message to every other rank through one port."""
    return 2 * seconds(links, (world - 1) * size // world)


def one_shot_seconds(links: Links, world: int, size: int) -> float:
    """In one step, with the whole vector to every other rank through one port."""
    return seconds(links, (world - 1) * size)


def crossover(links: Links, world: int) -> float:
    """Bytes up to which one shot is faster than two."""
    return links.latency * links.bandwidth / ((world - 1) * (1 - 2 / world))


def peak(links: int, each: float) -> float:
    """GB/s of so many links side by side."""
    return links * each
