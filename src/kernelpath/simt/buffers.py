"""Memory that kernels may touch, and what is remembered of its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kernelpath.simt.layout import BUFFER, UNWRITTEN
from kernelpath.simt.races import ENTRY

__all__ = ["Buffer", "Memory", "Shadow", "disjoint", "table"]


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
    history: npt.NDArray[np.uint8]
    granule: int


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
        state = known.state if known else np.zeros(buffer.nbytes, np.uint8)
        if known is None and not buffer.initialised:
            state[:] = UNWRITTEN
        history = np.zeros((-(-buffer.nbytes >> granule) + 1) * ENTRY, np.uint8)
        self.shadows[key] = Shadow(buffer, state, history, granule)
        return self.shadows[key]


def disjoint(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Buffers by address, those that overlap (views of one tensor) joined into one."""
    joined: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda buffer: (buffer.address, -buffer.nbytes)):
        last = joined[-1] if joined else None
        if last is None or buffer.address >= last.address + last.nbytes:
            joined.append(buffer)
            continue
        nbytes = max(last.nbytes, buffer.address + buffer.nbytes - last.address)
        names = last.name if nbytes == last.nbytes else f"{last.name} and {buffer.name}"
        joined[-1] = replace(last, name=names, nbytes=nbytes, initialised=last.initialised or buffer.initialised)
    return joined


def table(shadows: list[Shadow]) -> npt.NDArray[np.void]:
    """The records that memory checks search; ``shadows`` are by address. The first is empty and lies before them."""
    rows = np.zeros(len(shadows) + 1, BUFFER)
    for row, shadow in zip(rows[1:], shadows, strict=True):
        row["start"], row["bytes"] = shadow.buffer.address, shadow.buffer.nbytes
        row["state"], row["history"] = shadow.state.ctypes.data, shadow.history.ctypes.data
        row["granule"] = shadow.granule
    return rows
