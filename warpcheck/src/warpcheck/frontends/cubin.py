"""What a driver reads in a cubin about the resources of its kernels."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from warpcheck.elf import sections

_FRAME_BYTES, _REGISTERS = 0x11, 0x2F
_WITH_SIZE = 4
"""Of .nv.info, a list of attributes: EIATTR_FRAME_SIZE and EIATTR_REGCOUNT, as `cuobjdump -elf` names them, and the
format of those that tell their size. Their content is a symbol and a number."""


@dataclass(frozen=True)
class Resources:
    """registers: of a thread. local_bytes: of its local memory, where registers are spilled to."""

    registers: int
    local_bytes: int


def resources(cubin: bytes) -> Resources:
    """The most that a function in the cubin takes; zeros where it does not say."""
    found = {_FRAME_BYTES: [0], _REGISTERS: [0]}
    info = next((section.content for section in sections(cubin) if section.name == ".nv.info"), b"")
    for attribute, content in _attributes(info):
        if attribute in found:
            found[attribute].append(struct.unpack_from("<4xI", content)[0])
    return Resources(max(found[_REGISTERS]), max(found[_FRAME_BYTES]))


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(content):
        layout, attribute, size = struct.unpack_from("<BBH", content, at)
        at += 4
        if layout == _WITH_SIZE:
            yield attribute, content[at : at + size]
            at += size
