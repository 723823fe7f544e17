"""The picture of one measurement, as `kp bench` writes it."""

from __future__ import annotations

import io
from dataclasses import replace

from matplotlib.figure import Figure

from kernelpath import words
from kernelpath.show import plots, roofline
from kernelpath.verdict import Measurement


def draw(measured: Measurement) -> Figure:
    """The learner's kernel, the reference kernel and the baseline, as one run timed them.

    Kernels that compute nothing have no place on a roofline: bars show their bandwidth.
    """
    times = {"yours": measured.seconds, "reference": measured.reference_seconds, "baseline": measured.baseline_seconds}
    runs = {role: replace(measured, seconds=seconds) for role, seconds in times.items() if seconds is not None}
    labels = {role: f"{role}: {words.share(run.share_of_light)} of the measured ceiling" for role, run in runs.items()}
    roof = roofline.Roof.measured(measured.ceilings)
    if not measured.flops:
        rates = {labels[role]: run.bytes_per_second / 1e9 for role, run in runs.items()}
        return plots.bars(rates, "GB/s", roof.memory / 1e9, f"dotted: memory, {words.bandwidth(roof.memory)}")
    light, slowest = measured.flops / measured.light_seconds, max(runs, key=lambda role: runs[role].seconds)
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
    """The file of a figure."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150, bbox_inches="tight")
    return picture.getvalue()
