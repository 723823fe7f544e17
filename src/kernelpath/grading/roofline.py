"""The speed of light on this machine, and pictures of how near to it kernels come.

The roofline is Williams, Waterman and Patterson's (Communications of the ACM 52(4), 2009), drawn from ceilings
measured on this GPU in the same process, never from a data sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kernelpath.verdict import Measurement

MARGIN = 0.85
"""The share of the speed of light below which a time cannot be true. It leaves room for a kernel that only writes."""


def bandwidth(ceilings: Mapping[str, float]) -> float:
    """The most bytes per second that a kernel can move through device memory: the better of copy and read."""
    return max(ceilings["copy"], ceilings["read"])


def light_seconds(bytes_moved: int, flops: int, ceilings: Mapping[str, float], dtype: str | None = None) -> float:
    """The least time in which this machine can move so many bytes and do so many operations, in seconds.

    At best the two overlap, so the longer one counts. `dtype` names the matrix product whose ceiling bounds `flops`;
    without it only the bytes count. Raises KeyError for a ceiling that was not measured.
    """
    moving = bytes_moved / bandwidth(ceilings)
    return moving if dtype is None else max(moving, flops / ceilings[f"matmul_{dtype}"])


def too_fast(seconds: float, light: float) -> bool:
    """Whether a time beats the speed of light by more than the ceilings' error, so that it cannot be true.

    Holds only for a working set well past L2: what fits there may legally beat device memory.
    """
    return seconds < MARGIN * light


def roofline_plot(measurements: Mapping[str, Measurement], ceilings: Mapping[str, float]) -> Figure:
    """Kernels by name under this machine's roof: operations per second against operations per byte.

    Kernels without arithmetic have no place on that axis: bars show their bytes per second beside it.
    """
    from matplotlib.figure import Figure

    computing = {name: measured for name, measured in measurements.items() if measured.flops}
    moving = {name: measured for name, measured in measurements.items() if not measured.flops}
    panels = [(draw, kernels) for draw, kernels in ((_draw_roof, computing), (_draw_bars, moving)) if kernels]
    figure = Figure(figsize=(8.0 if len(panels) == 1 else 13.0, 5.0), layout="constrained")
    for axes, (draw, kernels) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw(axes, kernels, ceilings)
    return figure


def bandwidth_plot(kernels: Mapping[str, Mapping[int, float]], ceilings: Mapping[str, float]) -> Figure:
    """Bandwidth against size. `kernels` gives for each name: bytes moved -> bytes per second."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    for name, points in kernels.items():
        sizes = sorted(points)
        axes.plot([size / 1e6 for size in sizes], [points[size] / 1e9 for size in sizes], marker="o", label=name)
    axes.set(xscale="log", xlabel="bytes moved (MB)", ylabel="bandwidth (GB/s)")
    _draw_ceilings(axes.axhline, ceilings)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    return figure


def _draw_roof(axes: Axes, kernels: Mapping[str, Measurement], ceilings: Mapping[str, float]) -> None:
    """Intensities in operations per byte, rates in TFLOP/s. Dotted lines lead from a kernel to its speed of light."""
    speed = bandwidth(ceilings) / 1e12
    products = {name: rate / 1e12 for name, rate in ceilings.items() if name.startswith("matmul_")}
    intensities = [measured.flops / measured.bytes_moved for measured in kernels.values()]
    ridges = [rate / speed for rate in products.values()]
    low, high = min(*intensities, *ridges, 1.0) / 4, 4 * max(*intensities, *ridges, 1.0)
    top = max(ridges, default=high)
    axes.plot([low, top], [low * speed, top * speed], color="black", label=f"memory, {speed * 1e3:,.0f} GB/s")
    for name, rate in products.items():
        axes.plot([rate / speed, high], [rate, rate], color="black")
        label = f"{name.removeprefix('matmul_')} product, {rate:,.0f} TFLOP/s "
        axes.text(high, 1.05 * rate, label, ha="right", va="bottom", fontsize=9)
    for (name, measured), intensity in zip(kernels.items(), intensities, strict=True):
        reached, light = measured.flops / measured.seconds / 1e12, measured.flops / measured.light_seconds / 1e12
        axes.vlines(intensity, reached, light, color="grey", linestyle=":")
        axes.scatter(intensity, reached, zorder=3, label=f"{name}: {measured.share_of_light:.0%} of the speed of light")
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low * speed, 2 * top * speed))
    axes.set(xlabel="operations per byte of compulsory traffic", ylabel="TFLOP/s")
    axes.grid(which="both", alpha=0.2)
    axes.legend(loc="lower right", fontsize=9)


def _draw_bars(axes: Axes, kernels: Mapping[str, Measurement], ceilings: Mapping[str, float]) -> None:
    for name, measured in kernels.items():
        bar = axes.barh(name, measured.bytes_per_second / 1e9, height=0.5)
        label = f"{measured.share_of_light:.0%} of the speed of light"
        axes.bar_label(bar, [label], label_type="center", color="white")
    axes.invert_yaxis()
    _draw_ceilings(axes.axvline, ceilings)
    axes.set(xlabel="bandwidth (GB/s)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


def _draw_ceilings(line: Callable[..., object], ceilings: Mapping[str, float]) -> None:
    for name, style in (("copy", "-"), ("read", "--")):
        line(ceilings[name] / 1e9, color="black", linestyle=style, label=f"{name} {ceilings[name] / 1e9:,.0f} GB/s")
