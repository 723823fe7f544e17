"""Where the names of curves and tick labels stand, none on top of another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

_MOST_TICKS = 12
_AXES_POINTS = 200  # height of the axes of a figure of curves
_LABEL_POINTS = 10  # height of a line of a curve's name


def apart(places: Sequence[float], log: bool) -> list[float]:
    """Those of ascending places that are far enough apart on the axis for their names."""
    at = [np.log2(place) if log else place for place in places]
    gap = (at[-1] - at[0]) / (_MOST_TICKS - 1) * 0.999
    named: list[int] = [0]
    for index, place in enumerate(at):
        if index and place - at[named[-1]] >= gap:
            named.append(index)
    return [places[index] for index in named]


def name_at_the_right_end(axes: Axes) -> None:
    """The label of each curve beside its last point, from the lowest up, none on top of another."""
    on_axes = axes.transScale + axes.transLimits
    curves = [(on_axes.transform(np.asarray(curve.get_xydata())), curve) for curve in axes.get_lines()]
    right = max(points[-1, 0] for points, _ in curves)
    free = 0.0  # points above the axis from which on no label stands at the right
    for points, curve in sorted(curves, key=lambda one: one[0][-1, 1]):
        end, height = points[-1].tolist()  # in widths and heights of the axes
        goes_on = [other[other[:, 0] >= end, 1].min(initial=1.0) for other, one in curves if one is not curve]
        alone = end < right and height < min(goes_on, default=1.0) - 0.08
        covered = not alone and (end < right or height < 0.04)  # by another curve that goes on, or by the axis
        before = covered and end < right and len(points) > 1 and height > points[-2, 1]  # room above a curve that rises
        lift = 2.0 if covered else 0.0
        if end == right:
            tall = _LABEL_POINTS * (1 + str(curve.get_label()).count("\n"))
            bottom = _AXES_POINTS * height + (lift if covered else -tall / 2)
            lift += max(0.0, free - bottom)
            free = max(free, bottom) + tall
        x, y = np.asarray(curve.get_xydata())[-1]
        axes.annotate(
            str(curve.get_label()),
            (x, y),
            xytext=(-5 if before else 5, lift),  # clear of the last dot
            textcoords="offset points",
            color=curve.get_color(),
            fontsize=8,
            ha="right" if before else "left",
            va="bottom" if covered else "center",
        )
