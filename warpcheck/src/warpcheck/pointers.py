"""Find the memory that a kernel reaches through addresses in memory: in tables of pointers, and in structs.

Tensors of 64-bit integers and arguments may contain addresses. A word is an address if it points into a tensor; any
other word is a number.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import mmap
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from warpcheck import simt, simulated_gpu, tensor_map

if TYPE_CHECKING:
    import torch

    Argument = int | float | bytes | torch.Tensor
    """A kernel's argument. A tensor means its address."""

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

WORD = 8

# The address range of a process: memory is in [LEAST, MOST), and above HIGH except for some heaps.
#
# An executable at a fixed address has its heap below HIGH, where addresses are hard to tell from ordinary numbers. All
# other memory is above HIGH; with the 39-bit addresses of some aarch64 kernels it starts at 1 << 38.
LEAST = 1 << 20
HIGH = 1 << 37
MOST = 1 << 48


def above_the_heap(allocate: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Run a function in a thread of its own, so that its allocations are above HIGH.

    The allocator of the C library gives a thread an arena outside of the heap, so that every address in the allocated
    memory can be told from a number.
    """

    @functools.wraps(allocate)
    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(allocate, *args, **kwargs).result()

    return run


class Span(NamedTuple):
    """Memory that a kernel may reach: [start, end), whether it may contain addresses, and the tensor that owns it."""

    start: int
    end: int
    table: bool
    owner: Any

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Span:
        """Return the memory from a tensor's first element to its last."""
        return cls.of_buffer(simt.Buffer.of("", tensor))

    @classmethod
    def of_buffer(cls, buffer: simt.Buffer) -> Span:
        """Return the memory of a tensor's buffer."""
        return cls(buffer.address, buffer.address + buffer.nbytes, holds_words(buffer.owner), buffer.owner)

    def words(self) -> Words:
        """Return the words in this memory that may be addresses."""
        nbytes = self.end - self.start
        return words(bytes_at(self.start, nbytes if self.table and nbytes < simt.FAR else 0))


def bytes_at(address: int, nbytes: int) -> Bytes:
    """Return a view of this process's memory, which is valid for as long as its owner lives."""
    if not nbytes:
        return np.empty(0, np.uint8)
    return np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(address)), np.uint8)


def holds_words(tensor: torch.Tensor) -> bool:
    """Return whether a tensor may be a table of addresses."""
    return str(tensor.dtype) in ("torch.int64", "torch.uint64")


def words(content: Bytes) -> Words:
    """Return a view of bytes as words, without an incomplete last word."""
    return content[: content.size // WORD * WORD].view(np.int64)


def reachable(
    arguments: Sequence[Argument],
    roots: Sequence[tuple[str, Span]],
    list_candidates: Callable[[], Iterable[Span]],
    keep_addresses: Callable[[Words], Words] = lambda words: words,
) -> list[tuple[str, Span]]:
    """Return the memory that a kernel reaches through addresses, beyond its tensors.

    Args:
        arguments: The kernel's arguments, which may contain addresses.
        roots: The kernel's tensors by name, which may contain addresses.
        list_candidates: Returns the memory that addresses may point into; of several that contain an address the
            first counts. It is called at most once, and only if a word may point outside the roots.
        keep_addresses: Removes words that are certainly no addresses, where a list of candidates is expensive.

    Returns:
        Each candidate that is reached, named after a word that points into it. The order is that of the words, because
        the order of candidates depends on an allocator.
    """
    candidates: list[Span] | None = None
    reached: list[tuple[str, Span]] = []
    spans = [span for _, span in roots]
    pending = [(name, span.words()) for name, span in roots if span.table]
    pending += [
        (f"argument {index}", _words_in(value))
        for index, value in enumerate(arguments)
        if isinstance(value, bytes) or (isinstance(value, int) and LEAST <= value < MOST)
    ]
    while pending:
        name, values = pending.pop()
        unresolved = values[(values >= LEAST) & (values < MOST)]
        for span in spans:
            # `end` itself is not in the span: the next allocation may start there.
            unresolved = unresolved[~leads_into(unresolved, span.start, span.end)]
        unresolved = keep_addresses(unresolved)
        if not unresolved.size:
            continue
        if candidates is None:
            candidates = list(list_candidates())
        targets: list[tuple[int, Span]] = []
        for span in candidates:
            inside = leads_into(unresolved, span.start, span.end)
            if inside.any():
                # The index is that in the whole table, because the name of the memory shows it.
                targets.append((int(np.flatnonzero(values == unresolved[inside][0])[0]), span))
                unresolved = unresolved[~inside]
        for index, span in sorted(targets, key=lambda target: target[0]):
            reached.append((f"{name}[{index}]", span))
            # The search ends, because each span is followed once, even if tables point at each other.
            spans.append(span)
            pending.append((reached[-1][0], span.words()))
    return reached


def leads_into(values: Words, start: int, end: int) -> npt.NDArray[np.bool_]:
    """Return which words are addresses in [start, end). Below HIGH only `start` counts: other words may be numbers."""
    return (values >= start) & (values < end) if start >= HIGH else values == start


def _words_in(value: int | bytes) -> Words:
    if isinstance(value, bytes):
        return words(np.frombuffer(value, np.uint8))[: 1 if is_tensor_map(value) else None]
    return np.array([value], np.int64)


def is_tensor_map(content: bytes) -> bool:
    """Return whether an argument is a tensor map, whose only address is in its first word.

    Bit 1 of the second word is set in every tensor map, and in no struct with an aligned address there.
    """
    return len(content) == tensor_map.BYTES and bool(content[WORD] & 2)


_MS_ASYNC = 1
# The most words that are probed, at about a microsecond each.
_MOST_PROBED = 64


@functools.cache
def _msync() -> Any:
    """Return msync(2) of the C library. Looking it up takes longer than most calls of it."""
    return ctypes.CDLL(None).msync


def keep_mapped(words: Words) -> Words:
    """Remove words in pages that this process has not mapped, such as two extents of 32 bits in a struct."""
    # Without the probe, the list of candidates decides. It takes longer, and the result is the same.
    if not 0 < words.size <= _MOST_PROBED:
        return words
    msync = _msync()
    page = ctypes.c_size_t(mmap.PAGESIZE)
    # msync(2) fails with ENOMEM for a page that is not mapped, and MS_ASYNC does nothing for one that is.
    mapped = [word for word in words.tolist() if msync(ctypes.c_void_p(word & -mmap.PAGESIZE), page, _MS_ASYNC) == 0]
    return np.array(mapped, np.int64)


def storage_bytes(tensor: torch.Tensor) -> int:
    """Return the size of a tensor's storage; 0 for a tensor that stands for others, as inside torch.vmap."""
    try:
        return tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return 0


def alive() -> list[Span]:
    """Return the memory of every tensor in this process's memory, the largest first.

    The garbage collector knows the tensors, except for those that gc.freeze has hidden from it.
    """
    import torch

    # Compare types exactly: isinstance would run code of arbitrary objects, and fake tensors have no memory.
    tensors = [value for value in gc.get_objects() if type(value) in (torch.Tensor, torch.nn.Parameter)]
    spans = [
        Span.of(tensor)
        for tensor in tensors
        if simulated_gpu.is_host_memory(tensor.device) and tensor.layout == torch.strided
        if tensor.numel() and storage_bytes(tensor)
    ]
    return sorted(spans, key=lambda span: span.start - span.end)
