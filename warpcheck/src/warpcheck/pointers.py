"""Addresses that a kernel finds in memory: in tables of pointers, and in structs.

What may hold some is a tensor of 64-bit integers and an argument. An address counts where it lies in a tensor; any
other word is the number that it is.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from warpcheck import simt, tensor_map

if TYPE_CHECKING:
    import torch

    Argument = int | float | bytes | torch.Tensor
    """A kernel's argument. A tensor means its address."""

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")

WORD = 8
LEAST, HIGH, MOST = 1 << 20, 1 << 37, 1 << 48
"""Where a process has its memory. An executable at a fixed address has its heap below HIGH, among ordinary numbers;
all else lies above it, from 1 << 38 on where addresses have 39 bits, as in some kernels for aarch64."""


def above_the_heap(make: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Run it in a thread of its own, whose memory lies above HIGH also where the heap does not: in what it allocates
    every address is told from a number."""

    @functools.wraps(make)
    def run(*given: _Given.args, **named: _Given.kwargs) -> _Made:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(make, *given, **named).result()

    return run


class Span(NamedTuple):
    """Memory that a kernel may be given: the first byte, and the one behind the last. table: it may hold addresses."""

    start: int
    end: int
    table: bool
    owner: Any

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Span:
        """From a tensor's first element to its last."""
        buffer = simt.Buffer.of("", tensor)
        return cls(buffer.address, buffer.address + buffer.nbytes, holds_words(tensor), tensor)

    def words(self) -> Words:
        nbytes = self.end - self.start
        return words(bytes_at(self.start, nbytes if self.table and nbytes < simt.FAR else 0))


def bytes_at(address: int, nbytes: int) -> Bytes:
    """Memory of this process."""
    if not nbytes:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def holds_words(tensor: torch.Tensor) -> bool:
    """Whether a tensor may be a table of addresses."""
    return str(tensor.dtype) in ("torch.int64", "torch.uint64")


def words(content: Bytes) -> Words:
    """Bytes as words; what is left over is no address."""
    return content[: content.size // WORD * WORD].view(np.int64)


def reachable(
    arguments: Sequence[Argument], given: Sequence[tuple[str, Span]], others: Callable[[], Iterable[Span]]
) -> list[tuple[str, Span]]:
    """Those of the `others` that words in the arguments, or in what is `given` by name, point into: with such a word.

    Where several hold an address the first is taken. They are asked for once, where a word leads somewhere else.
    The result is in the order of the words, not of the others: where those lie depends on an allocator.
    """
    others = functools.cache(others)
    found: list[tuple[str, Span]] = []
    spans = [span for _, span in given]
    todo = [(name, span.words()) for name, span in given]
    todo += [(f"argument {at}", _words_in(value)) for at, value in enumerate(arguments)]
    while todo:
        name, values = todo.pop()
        left = values[(values >= LEAST) & (values < MOST)]
        for span in spans:
            left = left[~leads_into(left, span.start, span.end)]  # where it ends another one may begin
        led_to: list[tuple[int, Span]] = []
        for span in others() if left.size else ():
            inside = leads_into(left, span.start, span.end)
            if inside.any():
                led_to.append((int(np.flatnonzero(values == left[inside][0])[0]), span))
                left = left[~inside]
        for place, span in sorted(led_to, key=lambda one: one[0]):
            found.append((f"{name}[{place}]", span))
            spans.append(span)
            todo.append((found[-1][0], span.words()))
    return found


def leads_into(values: Words, start: int, end: int) -> npt.NDArray[np.bool_]:
    """Which words are addresses in [start, end). Below HIGH only `start` itself is one: the rest may be numbers."""
    return (values >= start) & (values < end) if start >= HIGH else values == start


def _words_in(value: Argument) -> Words:
    if isinstance(value, bytes):
        return words(np.frombuffer(value, np.uint8))[: 1 if is_tensor_map(value) else None]
    return np.array([value] if isinstance(value, int) and LEAST <= value < MOST else [], np.int64)


def is_tensor_map(content: bytes) -> bool:
    """Whether an argument is a tensor map, of which the first word alone is an address: no second address has bit 1."""
    return len(content) == tensor_map.BYTES and bool(content[WORD] & 2)


def alive() -> list[Span]:
    """Every tensor of this process that has memory, the longest first."""
    import torch

    kinds = torch.Tensor, torch.nn.Parameter
    tensors = [one for one in gc.get_objects() if type(one) in kinds]
    spans = [
        Span.of(one)
        for one in tensors
        if one.device.type == "cpu" and one.layout == torch.strided and one.numel() and one.untyped_storage().nbytes()
    ]
    return sorted(spans, key=lambda span: span.start - span.end)
