"""The memory that kernels may access, and the state and history of its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from warpcheck.layout import UNWRITTEN
from warpcheck.runtime.access_history import ENTRY_BYTES, HEADER_BYTES, REPLACED_BYTES
from warpcheck.runtime.arrays import FAR, Place, Records, address_of, span, zeroed
from warpcheck.runtime.records import BUFFER

if TYPE_CHECKING:
    import torch

__all__ = [
    "ARGUMENTS",
    "Buffer",
    "Memory",
    "Shadow",
    "SmallHistory",
    "buffer_table",
    "bytes_reached",
    "empty_history",
    "merge_overlapping",
]


# The most launches that a launch is taken to overlap, and whose history is kept for it.
MAX_OVERLAPPED = 16

BUFFER_WORDS = BUFFER.itemsize // 8  # all its fields are words

MIN_MAPPED_BYTES = 1 << 16  # bytes for which memory page by page is not worth a mapping of their own


# The name of the buffer that holds a kernel's arguments.
ARGUMENTS = "arguments"


@dataclass(frozen=True)
class Buffer:
    """A range of CPU memory that a kernel may access.

    ``address`` and ``nbytes`` bound it; ``itemsize`` in bytes and ``dtype`` are for messages ("1000 float32").
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
        """Return the memory from a strided tensor's lowest element to its highest.

        Objects that stand for tensors may have negative strides, so that their first element is not the lowest. They
        have no other methods than those that this function calls on them: `is_contiguous` is a shortcut for tensors.
        """
        itemsize = tensor.element_size()
        dtype = str(tensor.dtype).removeprefix("torch.")
        if hasattr(tensor, "is_contiguous") and tensor.is_contiguous():
            nbytes = tensor.numel() * itemsize
            return cls(name, tensor.data_ptr(), nbytes, itemsize, dtype=dtype, owner=tensor)
        offsets = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
        first = sum(min(offset, 0) for offset in offsets)
        last = sum(max(offset, 0) for offset in offsets)
        nbytes = (last - first + 1) * itemsize if tensor.numel() else 0
        address = tensor.data_ptr() + first * itemsize if nbytes else tensor.data_ptr()
        return cls(name, address, nbytes, itemsize, dtype=dtype, owner=tensor)

    def of_storage(self) -> Buffer:
        """Return the memory of the owner's whole storage. Objects that stand for tensors may have none."""
        if not hasattr(self.owner, "untyped_storage"):
            return self
        storage = self.owner.untyped_storage()
        return replace(self, address=storage.data_ptr(), nbytes=storage.nbytes())

    def without_owner(self) -> Buffer:
        """Return the same memory without the tensor, so that it can be freed."""
        if self.owner is None:
            return self
        return Buffer(self.name, self.address, self.nbytes, self.itemsize, self.initialised, self.dtype)


@dataclass
class Shadow:
    """The shadow memory of a buffer: the state of each byte, and the history of each granule of 2**granule bytes.

    The history points to ``replaced``; see ``empty_history``.
    """

    buffer: Buffer
    state: npt.NDArray[np.uint8]
    history: npt.NDArray[np.uint8]
    granule: int
    replaced: npt.NDArray[np.uint8]


class Memory:
    """The shadow memory of all buffers, kept from launch to launch.

    ``last_launch`` is the launch that has ended last, a runtime.launch.Grid.
    """

    def __init__(self) -> None:
        self.shadows: dict[tuple[int, int], Shadow] = {}
        self.time = 1
        self.last_launch: Any = None
        self._followed: list[Memory] = []
        self._allocated: list[tuple[int, npt.NDArray[np.uint8]]] = []

    def allocated(self, address: int, nbytes: int, state: npt.NDArray[np.uint8] | None = None) -> None:
        """Mark a range as unwritten, whatever buffers it will hold, or take over the states of its bytes.

        An array of states stays the caller's, and launches keep it up to date.
        """
        self._allocated.append((address, np.full(nbytes, UNWRITTEN, np.uint8) if state is None else state))

    def written(self, address: int) -> None:
        """Mark the range that holds this address as written by something other than a kernel."""
        for state in self._span(address, 0):
            state[:] = 0

    def forget(self, address: int, nbytes: int) -> None:
        """Forget a range: it was freed, and what is there later is new."""
        end = address + nbytes
        self.shadows = {key: entry for key, entry in self.shadows.items() if not address <= key[0] < end}
        self._allocated = [entry for entry in self._allocated if not address <= entry[0] < end]

    def follow(self, earlier: Memory) -> None:
        """Take over the histories of another memory, for a launch that may overlap the launches there."""
        self._followed = [*earlier._followed, earlier][-MAX_OVERLAPPED:]
        self.time = earlier.time
        self.last_launch = earlier.last_launch

    def release_owners(self) -> int:
        """Let the tensors of the buffers be freed, though their history is kept. Return the bytes of that history."""
        for shadow in self.shadows.values():
            shadow.buffer = shadow.buffer.without_owner()
        return sum(shadow.history.nbytes for shadow in self.shadows.values())

    def inheriting_shadow(self, buffer: Buffer, granule: int) -> Shadow:
        """Return a new shadow of a buffer with the history that its bytes have in all other shadows.

        Another launch may have accessed them through another buffer, in granules of another size.
        """
        earlier = [
            shadow
            for memory in (self, *self._followed)
            for (address, nbytes), shadow in memory.shadows.items()
            if address < buffer.address + buffer.nbytes and buffer.address < address + nbytes
        ]
        # The largest granule that divides those of all histories, and the distances between the buffers.
        distances = [abs(shadow.buffer.address - buffer.address) for shadow in earlier]
        alignments = [(distance & -distance).bit_length() - 1 for distance in distances if distance]
        granule = min([granule, *alignments, *(shadow.granule for shadow in earlier)])
        state = self.shadow(buffer, granule).state
        history, replaced = empty_history(-(-buffer.nbytes >> granule) + 1)
        inherited = Shadow(buffer, state, history, granule, replaced)
        for shadow in earlier:
            _copy_later_history(shadow, inherited)
        self.shadows[buffer.address, buffer.nbytes] = inherited
        return inherited

    def shadow(self, buffer: Buffer, granule: int) -> Shadow:
        """Return the shadow of a buffer, made at its first launch. A change of the granule begins a new history."""
        key = (buffer.address, buffer.nbytes)
        # The states of the bytes hold for any granule, but an entry of the history is for one size of granules.
        existing = self.shadows.get(key)
        if existing is not None and existing.granule == granule:
            existing.buffer = buffer  # as this launch calls it: another kernel may have another name for its parameter
            return existing
        state = existing.state if existing else next(self._span(*key), None)
        if state is None:
            state = zeroed(buffer.nbytes) if buffer.initialised else np.full(buffer.nbytes, UNWRITTEN, np.uint8)
        history, replaced = empty_history(-(-buffer.nbytes >> granule) + 1)
        self.shadows[key] = Shadow(buffer, state, history, granule, replaced)
        return self.shadows[key]

    def _span(self, address: int, nbytes: int) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the states of these bytes from an allocated range that holds them; of the whole range if ``nbytes``
        is 0.
        """
        for start, state in self._allocated:
            if start <= address and address + nbytes <= start + state.size:
                yield state[address - start : address - start + nbytes] if nbytes else state


def empty_history(granules: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return an empty history of so many granules, and the memory for writes that atomic ones replace.

    The address of the second array is in front of the first one.
    """
    end = HEADER_BYTES + granules * ENTRY_BYTES
    size = granules * REPLACED_BYTES
    if size < MIN_MAPPED_BYTES:
        memory = zeroed(end + size)
        replaced = memory[end:]
    else:
        # Most kernels never touch these bytes: they are committed page by page.
        replaced = span(size) if size < FAR else zeroed(size)
        memory = zeroed(end)
    memory[HEADER_BYTES - 8 : HEADER_BYTES].view(np.int64)[0] = address_of(replaced)
    return memory[HEADER_BYTES:end], replaced


class SmallHistory:
    """A history with the memory for replaced writes, as one array among those of a record; see `empty_history`.

    Args:
        name: The name of the array.
        granules: How many it is for.

    Attributes:
        shape: The element type and the extent of the array.
        entries: The place of the first entry.
        links: For `RecordLayout`.
    """

    def __init__(self, name: str, granules: int) -> None:
        end = HEADER_BYTES + granules * ENTRY_BYTES
        self.shape = (np.uint8, end + granules * REPLACED_BYTES)
        self.entries = Place(name, HEADER_BYTES)
        self.links = {Place(name, HEADER_BYTES - 8): Place(name, end)}
        self._name = name
        self._end = end

    @staticmethod
    def suits(granules: int) -> bool:
        """Return whether so many granules need no memory that is committed page by page."""
        return granules * REPLACED_BYTES < MIN_MAPPED_BYTES

    def of(self, records: Records) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Return the history in these records, and the memory for replaced writes."""
        array = records.array(self._name)
        return array[HEADER_BYTES : self._end], array[self._end :]


def _copy_later_history(source: Shadow, destination: Shadow) -> None:
    """Copy the entries of the bytes that two shadows share, where those of ``source`` are later.

    The granules of ``destination`` are not larger.
    """
    start = max(source.buffer.address, destination.buffer.address)
    end = min(source.buffer.address + source.buffer.nbytes, destination.buffer.address + destination.buffer.nbytes)
    first = (start - destination.buffer.address) >> destination.granule
    count = -(-(end - start) >> destination.granule)
    addresses = start + (np.arange(count) << destination.granule)
    numbers = addresses - source.buffer.address >> source.granule
    entries = source.history.view(np.int64).reshape(-1, ENTRY_BYTES // 8)[numbers]
    copies = destination.history.view(np.int64).reshape(-1, ENTRY_BYTES // 8)[first : first + count]
    # The upper half of the first two words is the time of the last write, and that of the last read.
    is_later = (entries[:, :2] >> 32).max(axis=1) > (copies[:, :2] >> 32).max(axis=1)
    copies[is_later] = entries[is_later]
    replaced = source.replaced.view(np.int64).reshape(-1, REPLACED_BYTES // 8)[numbers]
    destination.replaced.view(np.int64).reshape(-1, REPLACED_BYTES // 8)[first : first + count][is_later] = replaced[
        is_later
    ]


def merge_overlapping(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Return the buffers by address, with overlapping ones (views of one tensor) merged."""
    joined: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda buffer: (buffer.address, -buffer.nbytes)):
        last = joined[-1] if joined else None
        if last is None or buffer.address >= last.address + last.nbytes:
            joined.append(buffer)
            continue
        # Views of one tensor: their union may be read if one of them may.
        nbytes = max(last.nbytes, buffer.address + buffer.nbytes - last.address)
        names = last.name if nbytes == last.nbytes else f"{last.name} and {buffer.name}"
        joined[-1] = replace(last, name=names, nbytes=nbytes, initialised=last.initialised or buffer.initialised)
    return joined


def buffer_table(shadows: list[Shadow], min_checked_bytes: int = 0) -> npt.NDArray[np.int64]:
    """Return the table of BUFFER records that checks search, sorted by address. An empty record comes first.

    Buffers of less than `min_checked_bytes` get no history, so that races in them are not looked for.
    """
    # The binary search returns the last record that begins at or before an address, so there has to be one for any
    # address. The empty record contains nothing.
    words = [0] * BUFFER_WORDS
    for shadow in shadows:
        nbytes = shadow.buffer.nbytes
        history = address_of(shadow.history) if nbytes >= min_checked_bytes else 0
        words += shadow.buffer.address, nbytes, address_of(shadow.state), history, shadow.granule, 0, 0, 0
    return np.array(words, np.int64)


def bytes_reached(table: npt.NDArray[np.int64], address: int) -> int:
    """Return how many bytes after an address a sample of the blocks has accessed its buffer."""
    rows = table.view(BUFFER)
    row = rows[np.searchsorted(rows["start"], address, side="right") - 1]
    return int(row["start"] + row["reached"] - address)
