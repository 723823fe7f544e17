"""Place the names of curves and tick labels so that they do not overlap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

_MAX_TICKS = 12
_AXES_POINTS = 200  # height of the axes of a figure of curves
_LABEL_POINTS = 10  # height of a line of a curve's name


def select_ticks(values: Sequence[float], log: bool) -> list[float]:
    """Select those of ascending values that are far enough apart on the axis for their labels."""
    positions = [np.log2(value) if log else value for value in values]
    # Slightly less than the exact distance, so that rounding leaves out none of _MAX_TICKS evenly spaced values.
    min_distance = (positions[-1] - positions[0]) / (_MAX_TICKS - 1) * 0.999
    selected: list[int] = [0]
    for index, value in enumerate(positions):
        if index and value - positions[selected[-1]] >= min_distance:
            selected.append(index)
    return [values[index] for index in selected]


def name_curves(axes: Axes) -> None:
    """Write the label of each curve beside its last point, from the lowest curve up, without overlaps."""
    on_axes = axes.transScale + axes.transLimits
    curves = [(on_axes.transform(np.asarray(curve.get_xydata())), curve) for curve in axes.get_lines()]
    right = max(points[-1, 0] for points, _ in curves)
    next_free = 0.0  # height in points above which the right margin is free
    for points, curve in sorted(curves, key=lambda entry: entry[0][-1, 1]):
        end, height = points[-1].tolist()  # in widths and heights of the axes
        heights_ahead = [
            other_points[other_points[:, 0] >= end, 1].min(initial=1.0)
            for other_points, entry in curves
            if entry is not curve
        ]
        is_clear = end < right and height < min(heights_ahead, default=1.0) - 0.08
        covered = not is_clear and (end < right or height < 0.04)  # by another curve that continues, or by the axis
        place_left = (
            covered and end < right and len(points) > 1 and height > points[-2, 1]
        )  # room above a curve that rises
        lift = 2.0 if covered else 0.0
        if end == right:
            label_height = _LABEL_POINTS * (1 + str(curve.get_label()).count("\n"))
            bottom = _AXES_POINTS * height + (lift if covered else -label_height / 2)
            lift += max(0.0, next_free - bottom)
            next_free = max(next_free, bottom) + label_height
        x, y = np.asarray(curve.get_xydata())[-1]
        axes.annotate(
            str(curve.get_label()),
            (x, y),
            xytext=(-5 if place_left else 5, lift),  # clear of the last dot
            textcoords="offset points",
            color=curve.get_color(),
            fontsize=8,
            ha="right" if place_left else "left",
            va="bottom" if covered else "center",
        )
