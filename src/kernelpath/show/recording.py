"""What only a GPU can tell in a notebook: measured where there is one, else as results/notebooks.json recorded it."""

from __future__ import annotations

import datetime
import json
import os
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kernelpath import packages
from kernelpath.course import registry
from kernelpath.grading import timing
from kernelpath.hooks import triton as hooks
from kernelpath.show import provenance, results
from kernelpath.show.results import Recording
from kernelpath.verdict import encode
from kernelpath.work.stopwatch import Stopwatch

ROUNDS = 15


def on_gpu(key: str, measure: Callable[[], Any], gpus: int = 1) -> Any:
    """What `measure` returns on a GPU; without one, what it returned where it was recorded. {} if it never was.

    gpus: so many are needed. key: names the measurement in results/notebooks.json. The value must be JSON. With
    KERNELPATH_RECORD set to a file, it is recorded there.
    """
    if torch.cuda.device_count() >= gpus:
        value = json.loads(json.dumps(_on_the_gpu(measure)))
        found = Recording(torch.cuda.get_device_name(), f"{datetime.date.today()}", value, packages.versions())
        if file := os.environ.get("KERNELPATH_RECORD"):
            _record(Path(file), key, found)
        print(f"measured on this {found.device} ({provenance.listed(found.versions)})")
        return value
    recorded = results.recordings(registry.course() / results.FOLDER / results.RECORDINGS).get(key)
    if recorded is None:
        print("nothing to show: too few GPUs are here, and results/notebooks.json has no recording")
        return {}
    lacks = "no GPU here" if gpus == 1 else f"fewer than {gpus} GPUs here"
    print(f"{lacks}: recorded on {recorded.device}, {recorded.date} ({provenance.listed(recorded.versions)})")
    return recorded.value


def _on_the_gpu(measure: Callable[[], Any]) -> Any:
    """Call `measure` with Triton's own driver in place of the PTX machine's."""
    before = hooks.DRIVER.get().active
    hooks.RESET.get()()
    try:
        return measure()
    finally:
        hooks.ACTIVATE.get()(before)


def _record(file: Path, key: str, found: Recording) -> None:
    entries = {**results.recordings(file), key: found}
    file.write_text(encode(dict(sorted(entries.items())), indent=1) + "\n", encoding="utf-8")


def seconds(calls: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each call over `rounds` rounds in changing order, each from a cold L2. Needs a GPU."""
    watch = Stopwatch()
    labels = list(calls)
    taken: dict[str, list[float]] = {label: [] for label in labels}
    for index in range(rounds):
        order = [labels[place] for place in timing.implementation_order(index, len(labels))]
        for label, duration in zip(order, watch.round([calls[label] for label in order])[0], strict=True):
            taken[label].append(duration)
    return {label: statistics.median(durations) for label, durations in taken.items()}
