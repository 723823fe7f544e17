"""Repeated launches: in several orders of blocks and warps, and with several contents of unwritten shared memory.

One order may hide a mistake that another order shows. A read of shared memory that nothing has written is a fault only
if something depends on the content: a block whose tile is larger than the matrix computes with the rows that it has not
loaded, and drops the results.
"""

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

# Relative differences that sums of another order may have. bfloat16, which NumPy lacks, has a branch of its own.
_ROUNDING = {"float64": (np.float64, 1e-9), "float32": (np.float32, 1e-3), "float16": (np.float16, 1e-2)}


# The bytes that unwritten shared memory is filled with: large numbers of both signs, NaN or -1, and zero.
#
# These are their values in every floating-point type of 16 bits and more.
_FILLS = (0x7B, 0xFB, 0xFF, 0x00)

# The most bytes of buffers of a launch that is repeated with other contents of shared memory.
_MOST_BYTES_REPEATED = 1 << 30

# Runs a launch in a schedule. With a number, shared memory is filled with this byte, and counts as written.
Run = Callable[[Schedule, int | None], simt.Launch]


class _Snapshot:
    """The memory that a launch may write, as it was before the launch."""

    def __init__(self, buffers: Sequence[simt.Buffer], statics: Iterable[npt.NDArray[np.uint8]]) -> None:
        self.contents = [bytes_at(buffer.address, buffer.nbytes) for buffer in buffers]
        self._memory = [*self.contents, *statics]
        self._original = self.copy()

    def copy(self) -> list[npt.NDArray[np.uint8]]:
        """Return what is in the memory now: the buffers, then the variables."""
        return [content.copy() for content in self._memory]

    def restore(self) -> None:
        """Undo what a launch wrote."""
        for content, original in zip(self._memory, self._original, strict=True):
            content[:] = original


def run_in_schedules(
    run: Run,
    kernel: str,
    buffers: Sequence[simt.Buffer],
    statics: Iterable[npt.NDArray[np.uint8]],
    extra: Sequence[Schedule],
    *,
    permits_unused_reads: bool,
) -> simt.Launch:
    """Run a launch in extra schedules, undo what each wrote, and run it forward. Return the forward launch.

    If `permits_unused_reads`, a read of unwritten shared memory is no fault if nothing depends on the content. Warns
    where a result depends on the schedule by more than rounding explains. A fault or timeout that `run` raises gets the
    schedule as an attribute.
    """
    is_repeatable = permits_unused_reads and sum(buffer.nbytes for buffer in buffers) <= _MOST_BYTES_REPEATED
    snapshot = _Snapshot(buffers, statics) if extra or is_repeatable else None
    repeated = snapshot if is_repeatable else None
    results: list[tuple[Schedule, list[npt.NDArray[np.uint8]]]] = []
    if snapshot is not None:
        for schedule in extra:
            _run(run, schedule, repeated)
            results.append((schedule, snapshot.copy()))
            snapshot.restore()
    launch = _run(run, Schedule.FORWARD, repeated)
    for schedule, outputs in results:
        assert snapshot is not None
        for buffer, content, output in zip(buffers, snapshot.contents, outputs, strict=False):
            different = _differences(content, output, buffer)
            if different.size:
                count = different.size
                subject = f"{source_name(kernel)} leaves another {buffer.name}[{int(different[0])}]"
                remainder = f", and {count - 1:,} more elements" * (count > 1)
                warnings.warn(f"{subject} when its blocks and warps run {_ORDERS[schedule]}{remainder}", stacklevel=2)
    return launch


def _run(run: Run, schedule: Schedule, snapshot: _Snapshot | None) -> simt.Launch:
    try:
        return run(schedule, None)
    except (simt.Fault, simt.TimedOut) as error:
        error.schedule = schedule
        if snapshot is not None and isinstance(error, simt.Fault) and error.is_in_shared_memory:
            launch = _run_with_fills(run, schedule, snapshot)
            if launch is not None:
                name = f"{error.file}({error.line})"
                launch.printed += f"{name}: warning: {error.message}; nothing depends on what is there\n"
                return launch
        raise


def _run_with_fills(run: Run, schedule: Schedule, snapshot: _Snapshot) -> simt.Launch | None:
    """Run a launch with several contents of unwritten shared memory.

    Return the last launch, or None if there is another fault, or if a result or the number of instructions depends on
    the content.
    """
    expected: list[npt.NDArray[np.uint8]] = []
    for fill in _FILLS:
        snapshot.restore()
        try:
            launch = run(schedule, fill)
        except (simt.Fault, simt.TimedOut):
            return None
        # The number of instructions shows a branch that depends on the content, even if no result does.
        results = [*snapshot.copy(), np.array([launch.instructions]), np.frombuffer(launch.printed.encode(), np.uint8)]
        expected = expected or results
        if not all(map(np.array_equal, results, expected)):
            return None
    return launch


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
    # Relative to the largest element, because the error of a sum is that of its terms and not of its result.
    scale = float(finite.max()) if finite.size else 0.0
    return np.flatnonzero(~np.isclose(first, second, rtol=tolerance, atol=tolerance * scale, equal_nan=True))
