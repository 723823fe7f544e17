"""Read the resource usage of a cubin's kernels from its .nv.info section, as the driver does."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from warpcheck.elf import sections

# Attributes of .nv.info: EIATTR_FRAME_SIZE and EIATTR_REGCOUNT, as `cuobjdump -elf` names them.
#
# The content of both is the index of a symbol and a number, 32 bits each.
_FRAME_BYTES = 0x11
_REGISTERS = 0x2F

# EIFMT_SVAL, the format of an attribute whose content follows the header. Other formats store it in the header.
_FORMAT_SIZED = 4


@dataclass(frozen=True)
class KernelResources:
    """The resources of a thread: its registers, and the bytes of local memory that spilled registers go to."""

    registers: int
    local_bytes: int


def resources(cubin: bytes) -> KernelResources:
    """Return the maximum over all functions of the cubin, with zeros for attributes that it lacks."""
    values = {_FRAME_BYTES: [0], _REGISTERS: [0]}
    info = next((section.content for section in sections(cubin) if section.name == ".nv.info"), b"")
    for attribute, content in _attributes(info):
        if attribute in values:
            values[attribute].append(struct.unpack_from("<4xI", content)[0])
    return KernelResources(max(values[_REGISTERS]), max(values[_FRAME_BYTES]))


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(content):
        layout, attribute, size = struct.unpack_from("<BBH", content, offset)
        offset += 4
        if layout == _FORMAT_SIZED:
            yield attribute, content[offset : offset + size]
            offset += size
