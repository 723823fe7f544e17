"""Launches in both orders of blocks and warps: what depends on the order is a mistake that one order may hide."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from warpcheck import simt
from warpcheck.pointers import bytes_at
from warpcheck.runtime.symbols import source_name

__all__ = ["in_both_orders"]

_ROUNDING = {"float64": (np.float64, 1e-9), "float32": (np.float32, 1e-3), "float16": (np.float16, 1e-2)}
"""Relative differences that sums of another order may have. bfloat16, which NumPy lacks, has a branch of its own."""


def in_both_orders(
    run: Callable[[int], simt.Launch],
    kernel: str,
    buffers: Sequence[simt.Buffer],
    statics: Iterable[npt.NDArray[np.uint8]],
) -> simt.Launch:
    """Run a launch in the opposite order, undo what it has written, and run it in order. Returns the second launch.

    Warns where a result depends on the order by more than rounding explains. Raises what `run` raises.
    """
    contents = [bytes_at(buffer.address, buffer.nbytes) for buffer in buffers]
    variables = list(statics)
    before = [content.copy() for content in (*contents, *variables)]
    run(1)
    opposite = [content.copy() for content in contents]
    for content, kept in zip((*contents, *variables), before, strict=True):
        content[:] = kept
    launch = run(0)
    for buffer, content, other in zip(buffers, contents, opposite, strict=True):
        different = _differences(content, other, buffer)
        if different.size:
            place, count = int(different[0]), different.size
            what = f"{source_name(kernel)} leaves another {buffer.name}[{place}]"
            more = f", and {count - 1:,} more elements" * (count > 1)
            warnings.warn(f"{what} when its blocks and warps run in the opposite order{more}", stacklevel=2)
    return launch


def _differences(
    content: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8], buffer: simt.Buffer
) -> npt.NDArray[np.intp]:
    """The elements that differ by more than rounding."""
    if np.array_equal(content, other):
        return np.zeros(0, np.intp)
    if buffer.dtype == "bfloat16":
        first, second = ((half.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for half in (content, other))
        return _far_apart(first, second, 2e-2)
    if buffer.dtype in _ROUNDING:
        dtype, tolerance = _ROUNDING[buffer.dtype]
        return _far_apart(content.view(dtype), other.view(dtype), tolerance)
    rows = content.reshape(-1, buffer.itemsize) != other.reshape(-1, buffer.itemsize)
    return np.flatnonzero(rows.any(axis=1))


def _far_apart(
    first: npt.NDArray[np.floating], second: npt.NDArray[np.floating], tolerance: float
) -> npt.NDArray[np.intp]:
    """Elements whose difference is above a share of the largest magnitude: sums may cancel."""
    finite = np.abs(first[np.isfinite(first)])
    scale = float(finite.max()) if finite.size else 0.0
    return np.flatnonzero(~np.isclose(first, second, rtol=tolerance, atol=tolerance * scale, equal_nan=True))
