"""Launches in several orders of blocks and warps: one order may hide a mistake that another order shows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from warpcheck import simt
from warpcheck.pointers import bytes_at
from warpcheck.runtime.symbols import source_name
from warpcheck.schedule import Schedule

__all__ = ["run_in_schedules"]

_ORDERS = {
    Schedule.FORWARD: "in order",
    Schedule.REVERSE: "in the opposite order",
    Schedule.STRIDED: "in steps of a prime",
}

_ROUNDING = {"float64": (np.float64, 1e-9), "float32": (np.float32, 1e-3), "float16": (np.float16, 1e-2)}
"""Relative differences that sums of another order may have. bfloat16, which NumPy lacks, has a branch of its own."""


def run_in_schedules(
    run: Callable[[Schedule], simt.Launch],
    kernel: str,
    buffers: Sequence[simt.Buffer],
    statics: Iterable[npt.NDArray[np.uint8]],
    extra: Sequence[Schedule],
) -> simt.Launch:
    """Run a launch in extra schedules, undo what each wrote, and run it forward. Return the forward launch.

    Warns where a result depends on the schedule by more than rounding explains. A fault or timeout that `run` raises
    gets the schedule as an attribute.
    """
    contents = [bytes_at(buffer.address, buffer.nbytes) for buffer in buffers] if extra else []
    variables = list(statics) if extra else []
    before = [content.copy() for content in (*contents, *variables)]
    results: list[tuple[Schedule, list[npt.NDArray[np.uint8]]]] = []
    for schedule in extra:
        _run(run, schedule)
        results.append((schedule, [content.copy() for content in contents]))
        for content, original in zip((*contents, *variables), before, strict=True):
            content[:] = original
    launch = _run(run, Schedule.FORWARD)
    for schedule, outputs in results:
        for buffer, content, output in zip(buffers, contents, outputs, strict=True):
            different = _differences(content, output, buffer)
            if different.size:
                count = different.size
                subject = f"{source_name(kernel)} leaves another {buffer.name}[{int(different[0])}]"
                remainder = f", and {count - 1:,} more elements" * (count > 1)
                warnings.warn(f"{subject} when its blocks and warps run {_ORDERS[schedule]}{remainder}", stacklevel=2)
    return launch


def _run(run: Callable[[Schedule], simt.Launch], schedule: Schedule) -> simt.Launch:
    try:
        return run(schedule)
    except (simt.Fault, simt.TimedOut) as error:
        error.schedule = schedule
        raise


def _differences(
    forward: npt.NDArray[np.uint8], reordered: npt.NDArray[np.uint8], buffer: simt.Buffer
) -> npt.NDArray[np.intp]:
    """Return the indices of elements that differ by more than rounding explains."""
    if np.array_equal(forward, reordered):
        return np.zeros(0, np.intp)
    if buffer.dtype == "bfloat16":
        # A bfloat16 is the upper half of a float32.
        bits = (content.view(np.uint16).astype(np.uint32) << 16 for content in (forward, reordered))
        first, second = (words.view(np.float32) for words in bits)
        return _far_apart(first, second, 2e-2)
    if buffer.dtype in _ROUNDING:
        dtype, tolerance = _ROUNDING[buffer.dtype]
        return _far_apart(forward.view(dtype), reordered.view(dtype), tolerance)
    rows = forward.reshape(-1, buffer.itemsize) != reordered.reshape(-1, buffer.itemsize)
    return np.flatnonzero(rows.any(axis=1))


def _far_apart(
    first: npt.NDArray[np.floating], second: npt.NDArray[np.floating], tolerance: float
) -> npt.NDArray[np.intp]:
    """Return the indices of elements whose difference exceeds a share of the largest magnitude, since sums cancel."""
    finite = np.abs(first[np.isfinite(first)])
    scale = float(finite.max()) if finite.size else 0.0
    return np.flatnonzero(~np.isclose(first, second, rtol=tolerance, atol=tolerance * scale, equal_nan=True))
