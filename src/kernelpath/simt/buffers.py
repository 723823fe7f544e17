"""Memory that kernels may touch, and what is remembered of its bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelpath.simt.layout import BUFFER, UNWRITTEN, WRITTEN

__all__ = ["Buffer", "Memory", "Shadow", "table"]


@dataclass(frozen=True)
class Buffer:
    """A span of CPU memory that a kernel may touch.

    ``address`` and ``nbytes`` bound it; ``itemsize`` in bytes and ``dtype`` word the complaints ("1000 float32").
    ``initialised`` is false for memory that must be written before it is read.
    """

    name: str
    address: int
    nbytes: int
    itemsize: int
    initialised: bool = True
    dtype: str = "elements"


@dataclass
class Shadow:
    """What is known of a buffer: the state of each byte, and who touched each granule of 2**granule bytes."""

    buffer: Buffer
    state: npt.NDArray[np.uint8]
    history: npt.NDArray[np.int64]
    granule: int

    @property
    def written(self) -> npt.NDArray[np.bool_]:
        """Which bytes kernels have stored to."""
        return np.equal(self.state, WRITTEN)


class Memory:
    """Remembers over several launches which bytes of which buffers have been written."""

    def __init__(self) -> None:
        self.shadows: dict[tuple[int, int], Shadow] = {}
        self.time = 1

    def shadow(self, buffer: Buffer, granule: int) -> Shadow:
        """The shadow of a buffer, made at its first launch. The history begins anew where the granule changes."""
        key = (buffer.address, buffer.nbytes)
        known = self.shadows.get(key)
        if known is not None and known.granule == granule:
            return known
        state = known.state if known else np.full(buffer.nbytes, 0 if buffer.initialised else UNWRITTEN, np.uint8)
        history = np.zeros((-(-buffer.nbytes >> granule) + 1) * 2, np.int64)
        self.shadows[key] = Shadow(buffer, state, history, granule)
        return self.shadows[key]


def table(shadows: list[Shadow]) -> npt.NDArray[np.void]:
    """The records that memory checks search, by address; the first is empty and lies before all others."""
    rows = np.zeros(len(shadows) + 1, BUFFER)
    for row, shadow in zip(rows[1:], sorted(shadows, key=lambda shadow: shadow.buffer.address), strict=True):
        row["start"], row["bytes"] = shadow.buffer.address, shadow.buffer.nbytes
        row["state"], row["history"] = shadow.state.ctypes.data, shadow.history.ctypes.data
        row["granule"] = shadow.granule
    return rows
