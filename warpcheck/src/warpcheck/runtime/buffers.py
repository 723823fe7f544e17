"""Memory that kernels may touch, and what is remembered of its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from warpcheck.layout import UNWRITTEN
from warpcheck.runtime.arrays import FAR, span, zeroed
from warpcheck.runtime.history import ENTRY, HEADER, SHADOWED
from warpcheck.runtime.records import BUFFER

if TYPE_CHECKING:
    import torch

__all__ = ["ARGUMENTS", "Buffer", "Memory", "Shadow", "disjoint", "empty_history", "reached", "table"]


FEW = 1 << 16  # bytes for which memory page by page is not worth a mapping of their own


ARGUMENTS = "arguments"
"""The name of the buffer that holds a kernel's arguments."""


@dataclass(frozen=True)
class Buffer:
    """A span of CPU memory that a kernel may touch.

    ``address`` and ``nbytes`` bound it; ``itemsize`` in bytes and ``dtype`` word the complaints ("1000 float32").
    ``initialised`` is false for memory that must be written before it is read. ``owner`` is the tensor, if any.
    """

    name: str
    address: int
    nbytes: int
    itemsize: int
    initialised: bool = True
    dtype: str = "elements"
    owner: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> Buffer:
        """The memory from a strided tensor's first element to its last."""
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        itemsize, dtype = tensor.element_size(), str(tensor.dtype).removeprefix("torch.")
        nbytes = (last + 1) * itemsize if tensor.numel() else 0
        return cls(name, tensor.data_ptr(), nbytes, itemsize, dtype=dtype, owner=tensor)


@dataclass
class Shadow:
    """What is known of a buffer: the state of each byte, and who touched each granule of 2**granule bytes.

    ``history`` leads to ``replaced``; see ``empty_history``.
    """

    buffer: Buffer
    state: npt.NDArray[np.uint8]
    history: npt.NDArray[np.uint8]
    granule: int
    replaced: npt.NDArray[np.uint8]


class Memory:
    """Remembers over several launches which bytes of which buffers have been written."""

    def __init__(self) -> None:
        self.shadows: dict[tuple[int, int], Shadow] = {}
        self.time = 1
        self._allocated: list[tuple[int, npt.NDArray[np.uint8]]] = []

    def allocated(self, address: int, nbytes: int, state: npt.NDArray[np.uint8] | None = None) -> None:
        """Nothing has been written yet to this span, whatever buffers will lie in it, or what ``state`` says of it.

        The state is the caller's, and launches keep it up to date.
        """
        self._allocated.append((address, np.full(nbytes, UNWRITTEN, np.uint8) if state is None else state))

    def written(self, address: int) -> None:
        """The span in which this address lies was written by something other than a kernel."""
        for state in self._span(address, 0):
            state[:] = 0

    def forget(self, address: int, nbytes: int) -> None:
        """The span is no more; what lies there later is new."""
        end = address + nbytes
        self.shadows = {key: one for key, one in self.shadows.items() if not address <= key[0] < end}
        self._allocated = [one for one in self._allocated if not address <= one[0] < end]

    def shadow(self, buffer: Buffer, granule: int) -> Shadow:
        """The shadow of a buffer, made at its first launch. The history begins again where the granule changes."""
        key = (buffer.address, buffer.nbytes)
        known = self.shadows.get(key)
        if known is not None and known.granule == granule:
            known.buffer = buffer  # as this launch calls it: another kernel may have another name for its parameter
            return known
        state = known.state if known else next(self._span(*key), None)
        if state is None:
            state = zeroed(buffer.nbytes) if buffer.initialised else np.full(buffer.nbytes, UNWRITTEN, np.uint8)
        history, replaced = empty_history(-(-buffer.nbytes >> granule) + 1)
        self.shadows[key] = Shadow(buffer, state, history, granule, replaced)
        return self.shadows[key]

    def _span(self, address: int, nbytes: int) -> Iterator[npt.NDArray[np.uint8]]:
        """The state of the allocated span that holds these bytes, or from its start where there are none."""
        for start, state in self._allocated:
            if start <= address and address + nbytes <= start + state.size:
                yield state[address - start : address - start + nbytes] if nbytes else state


def empty_history(granules: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The history of so many granules of memory, which nobody has touched, and the writes that atomic ones replace.

    The second array takes memory page by page: most kernels never touch it. The first has its address in front.
    """
    size = granules * SHADOWED
    replaced = span(size) if FEW <= size < FAR else zeroed(size)
    whole = zeroed(HEADER + granules * ENTRY)
    whole[HEADER - 8 : HEADER].view(np.int64)[0] = replaced.ctypes.data
    return whole[HEADER:], replaced


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


def reached(rows: npt.NDArray[np.void], address: int) -> int:
    """How many bytes behind an address a sample of the blocks has accessed the buffer that it lies in."""
    row = rows[np.searchsorted(rows["start"], address, side="right") - 1]
    return int(row["start"] + row["reached"] - address)
