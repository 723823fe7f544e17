"""What the notebooks call: grade, predict, count on the PTX machine, time on a GPU. Thin, over the same grader as `kp`.

The notebooks grade the learner's files in phases/. With KERNELPATH_TREE=solutions in the environment they use the
reference kernels, which is how `execute` runs them for the tests and for the outputs that are committed.
What only a GPU can tell is kept in results/notebooks.json, so that it can be read on a machine without one.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelpath import lanes
from kernelpath.course import registry
from kernelpath.course.progress import NotSaved, Progress, with_report
from kernelpath.course.registry import Item, Tree
from kernelpath.grading import grade, timing
from kernelpath.show import graded, plots, view
from kernelpath.verdict import Report

if TYPE_CHECKING:
    from kernelpath.simt import Launch, LineCounters

Kernel = Callable[..., Any]

ROUNDS = 15
WIDTH = 110


def tree() -> Tree:
    """Whose kernels are used: "phases" (the learner's) unless KERNELPATH_TREE says "solutions"."""
    return "solutions" if os.environ.get("KERNELPATH_TREE") == "solutions" else "phases"


def console() -> Console:
    return Console(width=WIDTH)


def setup(*, triton: bool = False) -> None:
    """Draw figures sharply, and say what this machine can do. triton: run its kernels on the PTX machine.

    Where there is a GPU, Triton's kernels still go to it inside `on_gpu`.
    """
    from IPython.core.getipython import get_ipython
    from IPython.core.pylabtools import select_figure_formats

    if shell := get_ipython():
        select_figure_formats(shell, {"retina"})  # type: ignore[no-untyped-call]
    if triton:
        from kernelpath.lanes import triton as lane

        lane.activate("cpu")
    if torch.cuda.is_available():
        print(f"{torch.cuda.get_device_name()}: kernels are timed here, and counted on the PTX machine.")
    else:
        print("No GPU here: kernels are compiled as for one and run on the PTX machine, which counts what they ask of")
        print("memory. Times were recorded on the GPU that is named beside them; with a GPU they would be taken here,")
        print("and your kernel would be timed against the baseline.")


# Grading and asking


def check(name: str) -> Report:
    """Grade the learner's file for an exercise, show the report and remember a pass, as `kp check` does."""
    item = registry.find(name)
    report = graded.kept(item) if tree() == "solutions" else None
    report = report or grade.grade(item, item.submission(tree()))
    view.report(console(), item, report, explain=registry.load(item).explain)
    if tree() == "phases":
        _remember(item, report)
    return report


def _remember(item: Item, report: Report) -> None:
    progress = Progress(item.root)
    try:
        if report.verdict.passed:
            progress.update(item.stem, lambda record: with_report(record, report))
        progress.keep(report, item.files("phases"))
    except NotSaved as error:
        print(error)


def ask(name: str, number: int, answer: str | float | EllipsisType = ...) -> None:
    """Show question `number` (from 0) of an exercise. With an answer: whether it is right, and why."""
    question = registry.load(registry.find(name)).questions[number]
    shown = console()
    shown.print(Text(question.ask, "bold"))
    for choice in question.choices:
        shown.print(Text(f"  - {choice}"))
    if isinstance(answer, EllipsisType):
        shown.print(Text("Put your answer in place of the dots and run the cell again.", "dim"))
        return
    right = question.accepts(answer)
    shown.print(Text("right" if right else f"no: {question.answer}", "green" if right else "red"))
    shown.print(Text(question.why))


def hold(prediction: float | EllipsisType, measured: float, unit: str) -> None:
    """Hold a prediction against what was found."""
    said = f"found {_number(measured)} {unit}"
    if isinstance(prediction, EllipsisType):
        print(f"{said}; no prediction (put yours in place of the dots)")
    elif prediction == measured:
        print(f"{said}, as you predicted")
    else:
        print(f"{said}; you predicted {_number(prediction)}, {_factor(prediction, measured)}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"


def _factor(prediction: float, measured: float) -> str:
    if prediction <= 0 or measured <= 0 or math.isinf(measured):
        return f"off by {_number(abs(prediction - measured))}"
    ratio = prediction / measured
    if abs(ratio - 1) < 0.01:
        return "right within 1 %"
    return f"{ratio:.3g} times too much" if ratio > 1 else f"{1 / ratio:.3g} times too little"


# Kernels side by side


def contestants(name: str) -> dict[str, Kernel]:
    """The entries of an exercise by whose they are: "yours" and "reference"; the reference alone in its own tree."""
    item = registry.find(name)
    entry = registry.load(item).entry
    labels: dict[str, Tree] = {"reference": "solutions"}
    if tree() == "phases":
        labels = {"yours": "phases", **labels}
    return {
        label: getattr(registry.import_file(item.submission(whose), f"notebook_{label}_{name}", listed=False), entry)
        for label, whose in labels.items()
    }


def started(kernels: Mapping[str, Kernel], *arguments: Any) -> dict[str, Kernel]:
    """Those that do not raise NotImplementedError; the others are named."""
    able = {}
    for label, kernel in kernels.items():
        try:
            kernel(*arguments)
            able[label] = kernel
        except NotImplementedError:
            print(f"{label}: not started")
    return able


def launches(kernel: Kernel, *arguments: Any) -> list[Launch]:
    """Call a kernel on CPU tensors and return what the PTX machine counted, launch by launch.

    Raises ValueError if no kernel was launched on the CPU.
    """
    launched: list[lanes.Launched] = []
    with lanes.observe(launched.append):
        kernel(*arguments)
    counted = [one.counted for one in launched if one.counted is not None]
    if not counted:
        raise ValueError("nothing was launched on the PTX machine; are the tensors on the CPU?")
    return counted


def count(kernel: Kernel, *arguments: Any) -> Launch:
    """What the PTX machine counted in the only launch that the call makes. Raises ValueError if there are several."""
    (launch,) = launches(kernel, *arguments)
    return launch


@dataclass(frozen=True)
class Asked:
    """What a call asked of memory, over all its launches. Requests are accesses of whole warps."""

    requests: int
    sectors: int
    shared_requests: int
    wavefronts: int
    least_wavefronts: int
    instructions: int

    @property
    def bytes(self) -> int:
        """Bytes moved between the SMs and memory: 32 for each sector."""
        return plots.SECTOR_BYTES * self.sectors

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests


def asked(kernel: Kernel, *arguments: Any) -> Asked:
    """Call a kernel on CPU tensors and sum what all of its launches asked for."""
    totals = [launch.totals for launch in launches(kernel, *arguments)]
    return Asked(
        requests=sum(one.global_load_requests + one.global_store_requests for one in totals),
        sectors=sum(one.global_load_sectors + one.global_store_sectors for one in totals),
        shared_requests=sum(one.shared_load_requests + one.shared_store_requests for one in totals),
        wavefronts=sum(one.shared_load_wavefronts + one.shared_store_wavefronts for one in totals),
        least_wavefronts=sum(one.shared_load_least_wavefronts + one.shared_store_least_wavefronts for one in totals),
        instructions=sum(sum(one.instructions.values()) for one in totals),
    )


def annotate(launch: Launch, source: str) -> None:
    """The source, and beside each line what a request of it cost: sectors in global memory, wavefronts in shared."""
    facts = {number: _facts(counted) for number, counted in launch.lines.items()}
    headings = [heading for heading in _HEADINGS if any(heading in line for line in facts.values())]
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for heading in (*headings, "\nline"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("\nsource", no_wrap=True)
    for number, text in enumerate(source.rstrip().splitlines(), 1):
        costs = facts.get(number, {})
        table.add_row(*(costs.get(heading, "") for heading in headings), f"{number}", Text(text))
    Console(width=max(map(len, source.splitlines())) + 60).print(table)


_HEADINGS = ("sectors\na load", "sectors\na store", "wavefronts\na load", "wavefronts\na store")


def _facts(line: LineCounters) -> dict[str, str]:
    pairs = (
        (line.global_load_sectors, line.global_load_requests),
        (line.global_store_sectors, line.global_store_requests),
        (line.shared_load_wavefronts, line.shared_load_requests),
        (line.shared_store_wavefronts, line.shared_store_requests),
    )
    costs = zip(_HEADINGS, pairs, strict=True)
    return {heading: f"{cost / requests:.3g}" for heading, (cost, requests) in costs if requests}


def show(rows: Mapping[str, Mapping[str, Any]], head: str = "") -> None:
    """A table: a row for each label, a column for each key; floats to three digits."""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(head)
    for column in columns:
        table.add_column(column, justify="right")
    for label, row in rows.items():
        table.add_row(label, *(_cell(row.get(column)) for column in columns))
    console().print(table)


def _cell(value: Any) -> str:
    return (
        ""
        if value is None
        else f"{value:,.3g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


# What only a GPU can tell


def on_gpu(key: str, measure: Callable[[], Any]) -> Any:
    """What `measure` returns on a GPU; without one, what it returned where it was recorded. {} if it never was.

    key: names the measurement in results/notebooks.json. The value must be JSON. With KERNELPATH_RECORD set to a file,
    it is recorded there.
    """
    if torch.cuda.is_available():
        entry = {
            "device": torch.cuda.get_device_name(),
            "date": f"{datetime.date.today()}",
            "value": _on_the_gpu(measure),
        }
        if record := os.environ.get("KERNELPATH_RECORD"):
            _record(Path(record), key, entry)
        print(f"measured on this {entry['device']}")
        return json.loads(json.dumps(entry["value"]))
    recorded = _recorded(registry.root() / "results" / "notebooks.json").get(key)
    if recorded is None:
        print("nothing to show: there is no GPU here, and results/notebooks.json has no recording of this measurement")
        return {}
    print(f"no GPU here: recorded on {recorded['device']}, {recorded['date']}")
    return recorded["value"]


def _on_the_gpu(measure: Callable[[], Any]) -> Any:
    """Call `measure` with Triton's own driver in place of the PTX machine's."""
    from triton.runtime import driver

    before = driver.active
    driver.reset_active()
    try:
        return measure()
    finally:
        driver.set_active(before)


def _recorded(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def _record(file: Path, key: str, entry: Mapping[str, Any]) -> None:
    entries = {**_recorded(file), key: entry}
    file.write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n", encoding="utf-8")


def times(key: str, race: Callable[[], Mapping[str, Callable[[], Any]]]) -> dict[str, float]:
    """Median seconds of each contestant, interleaved, cold L2; recorded ones where there is no GPU.

    race: makes the tensors and returns label -> call. It is not called without a GPU.
    """
    found: dict[str, float] = on_gpu(key, lambda: seconds(started(race())))
    return found


def seconds(calls: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each call over `rounds` rounds in changing order, each from a cold L2. Needs a GPU."""
    watch = timing.Stopwatch()
    labels = list(calls)
    taken: dict[str, list[float]] = {label: [] for label in labels}
    for index in range(rounds):
        order = [labels[place] for place in timing.order(index, len(labels))]
        for label, duration in zip(order, watch.round([calls[label] for label in order])[0], strict=True):
            taken[label].append(duration)
    return {label: statistics.median(durations) for label, durations in taken.items()}
