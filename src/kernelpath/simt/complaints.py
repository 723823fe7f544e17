"""Sentences about what a thread did wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelpath.simt.buffers import Buffer
from kernelpath.simt.errors import FaultKind
from kernelpath.simt.layout import Access
from kernelpath.simt.lowered import Site

__all__ = ["describe", "source_name"]

LOWEST = 1 << 16
"""No memory lies below this address: a pointer there is a null pointer with an index."""

_VERBS = {Access.LOAD: "reads", Access.STORE: "writes", Access.ATOMIC: "updates"}


def describe(kind: FaultKind, site: Site, address: int, place: str, other: str) -> str:
    """What is wrong with one access: ``place`` says where it went, ``other`` which thread it raced with."""
    verb = f"{_VERBS[site.access]} {site.bytes} byte{'s' * (site.bytes > 1)}"
    if kind == FaultKind.OUT_OF_BOUNDS:
        return f"{verb} {place}"
    if kind == FaultKind.MISALIGNED:
        return f"{verb} at {place}, which is not a multiple of {site.bytes}"
    if kind == FaultKind.UNINITIALIZED:
        return f"{verb} at {place}, which nothing has written"
    return f"{verb} at {place}, which {other} touches with no barrier between them"


def global_place(address: int, size: int, buffers: Sequence[Buffer]) -> str:
    """An address relative to the buffer that holds it, or to the nearest."""
    if not buffers or address < LOWEST:
        return f"at {address:#x}, where no tensor is"
    nearest = min(buffers, key=lambda b: max(b.address - address, address + size - b.address - b.nbytes, 0))
    extent = f"{nearest.name} ({nearest.nbytes // nearest.itemsize} {nearest.dtype})"
    offset = address - nearest.address
    if offset >= 0 and offset + size <= nearest.nbytes:
        index, rest = divmod(offset, nearest.itemsize)
        return f"{nearest.name}[{index}]" + (f" + {rest} bytes" if rest else "")
    distance = -offset if offset < 0 else offset + size - nearest.nbytes
    if distance > 1 << 30:
        return f"at {address:#x}, where no tensor is"
    if offset < 0:
        return f"{-offset} bytes before the beginning of {extent}"
    return f"past the end of {extent}" + (f", by {distance} bytes" if distance > size else "")


def window_place(offset: int, size: int, extent: int, names: dict[str, int], what: str) -> str:
    """An offset in shared or local memory, with the variable that it lies in."""
    inside = [(start, name) for name, start in names.items() if start <= offset]
    if offset < 0:
        return f"{-offset} bytes before the beginning of {what} memory"
    if offset + size > extent:
        return f"past the end of {what} memory ({extent} bytes), at offset {offset}"
    start, name = max(inside, default=(0, f"{what} memory"))
    return f"{source_name(name)} + {offset - start} bytes"


def source_name(symbol: str) -> str:
    """The name that a kernel, or a variable of one, has in the source: ``_ZZ7softmaxIfEvPfE3red`` is ``red``."""
    match = re.fullmatch(r"_ZZ.*E(\d+)(\w+)", symbol) or re.fullmatch(r"_Z(\d+)(\w+)", symbol)
    return match[2][: int(match[1])] if match else symbol
