"""Provide measurements that need a GPU to notebooks: measured on a GPU, else recorded in results/notebooks.json."""

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
from kernelpath.show import provenance, results
from kernelpath.show.results import NotebookRecording
from kernelpath.verdict import encode
from kernelpath.work.stopwatch import Stopwatch
from warpcheck.hooks import triton as hooks

ROUNDS = 15


def on_gpu(key: str, measure: Callable[[], Any], gpus: int = 1) -> Any:
    """Return what `measure` returns on a GPU, or what was recorded, or {} without a recording.

    With KERNELPATH_RECORD set to a file, a measurement is recorded there. Its value must be JSON.

    Args:
        key: The name of the measurement in results/notebooks.json.
        gpus: The number of GPUs that the measurement needs.
    """
    if torch.cuda.device_count() >= gpus:
        # JSON turns tuples into lists and keys into texts. So a cell gets the same value with a GPU as from the
        # recording.
        value = json.loads(json.dumps(_with_triton_driver(measure)))
        recording = NotebookRecording(
            torch.cuda.get_device_name(), f"{datetime.date.today()}", value, packages.versions()
        )
        if file := os.environ.get("KERNELPATH_RECORD"):
            _record(Path(file), key, recording)
        print(f"measured on this {recording.device} ({provenance.format_versions(recording.versions)})")
        return value
    recorded = results.recordings(registry.course() / results.FOLDER / results.RECORDINGS).get(key)
    if recorded is None:
        print("nothing to show: too few GPUs are here, and results/notebooks.json has no recording")
        return {}
    lacks = "no GPU here" if gpus == 1 else f"fewer than {gpus} GPUs here"
    print(f"{lacks}: recorded on {recorded.device}, {recorded.date} ({provenance.format_versions(recorded.versions)})")
    return recorded.value


def _with_triton_driver(measure: Callable[[], Any]) -> Any:
    """Call `measure` with Triton's own driver instead of the PTX machine's."""
    previous_driver = hooks.DRIVER.get().active
    hooks.RESET.get()()
    try:
        return measure()
    finally:
        hooks.ACTIVATE.get()(previous_driver)


def _record(file: Path, key: str, recording: NotebookRecording) -> None:
    entries = {**results.recordings(file), key: recording}
    file.write_text(encode(dict(sorted(entries.items())), indent=1) + "\n", encoding="utf-8")


def seconds(calls: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the median seconds of each call over `rounds` rounds in changing order, each from a cold L2.

    Needs a GPU.
    """
    watch = Stopwatch()
    labels = list(calls)
    durations_by_label: dict[str, list[float]] = {label: [] for label in labels}
    for index in range(rounds):
        order = [labels[place] for place in timing.implementation_order(index, len(labels))]
        for label, duration in zip(order, watch.round([calls[label] for label in order])[0], strict=True):
            durations_by_label[label].append(duration)
    return {label: statistics.median(durations) for label, durations in durations_by_label.items()}
