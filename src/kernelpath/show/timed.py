"""Draw one measurement as `kp bench` writes it."""

from __future__ import annotations

import io
from dataclasses import replace

from matplotlib.figure import Figure

from kernelpath import words
from kernelpath.show import plots, roofline
from kernelpath.verdict import Measurement


def draw(measured: Measurement) -> Figure:
    """Draw the learner's kernel, the reference kernel and the baseline as one run measured them.

    A kernel without arithmetic has no place on a roofline. Bars show its bandwidth instead.
    """
    times = {"yours": measured.seconds, "reference": measured.reference_seconds, "baseline": measured.baseline_seconds}
    runs = {role: replace(measured, seconds=seconds) for role, seconds in times.items() if seconds is not None}
    labels = {role: f"{role}: {words.share(run.share_of_light)} of the measured ceiling" for role, run in runs.items()}
    roof = roofline.Roof.measured(measured.ceilings)
    if not measured.flops:
        rates = {labels[role]: run.bytes_per_second / 1e9 for role, run in runs.items()}
        return plots.bars(rates, "GB/s", roof.memory / 1e9, f"dotted: memory, {words.bandwidth(roof.memory)}")
    light = measured.flops / measured.light_seconds
    slowest = max(runs, key=lambda role: runs[role].seconds)
    marks = [
        roofline.Mark(
            label=labels[role],
            intensity=measured.flops / measured.compulsory_bytes,
            rate=measured.flops / run.seconds,
            light=light if role == slowest else 0.0,
        )
        for role, run in runs.items()
    ]
    return roofline.draw(marks, roof)


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG file."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150, bbox_inches="tight")
    return picture.getvalue()
