"""What of the ELF and DWARF formats a cubin needs: its sections, and its line tables."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Section", "line_rows", "sections"]

_SECTIONS_AT = 0x28
_SECTION_COUNTS_AT = 0x3A
_SECTION = struct.Struct("<IIQQQQIIQQ")
"""Of ELF64. Source: the ELF specification, Elf64_Ehdr and Elf64_Shdr."""
_NO_BYTES = 8  # SHT_NOBITS: memory that begins as zeros


@dataclass(frozen=True)
class Section:
    """A section: its name and its bytes."""

    name: str
    content: bytes


def sections(elf: bytes) -> list[Section]:
    """The sections of an ELF file, by their numbers."""
    (table,) = struct.unpack_from("<Q", elf, _SECTIONS_AT)
    size, count, names = struct.unpack_from("<HHH", elf, _SECTION_COUNTS_AT)
    headers = [_SECTION.unpack_from(elf, table + size * index) for index in range(count)]
    found = []
    for name, kind, _, _, start, length, *_ in headers:
        at = headers[names][4] + name
        content = b"" if kind == _NO_BYTES else elf[start : start + length]
        found.append(Section(elf[at : elf.index(b"\0", at)].decode(), content))
    return found


_COPY = 1
_ADVANCE_ADDRESS = 2
_ADVANCE_LINE = 3
_CONST_ADD_ADDRESS = 8
_FIXED_ADVANCE_ADDRESS = 9
_END_SEQUENCE = 1


def line_rows(table: bytes) -> Iterator[tuple[int, int, int]]:
    """The rows of a line table: the number of their sequence, an address in it, a line.

    Source: the DWARF 2 specification, 6.2, whose statement programs ptxas writes.
    """
    at = 0
    sequence = 0
    while at < len(table):
        length, version, header = struct.unpack_from("<IHI", table, at)
        end = at + 4 + length
        program = at + 10 + header
        fields = at + 10 + (version >= 4)
        step, _, base, span, first = struct.unpack_from("<BBbBB", table, fields)
        operands = table[fields + 5 : fields + 5 + first - 1]
        address = 0
        line = 1
        at = program
        while at < end:
            code = table[at]
            at += 1
            if code >= first:
                address += (code - first) // span * step
                line += base + (code - first) % span
                yield sequence, address, line
            elif code == 0:
                size, at = _leb128(table, at)
                if table[at] == _END_SEQUENCE:
                    address = 0
                    line = 1
                    sequence = sequence + 1
                at += size
            elif code == _COPY:
                yield sequence, address, line
            elif code == _ADVANCE_ADDRESS:
                amount, at = _leb128(table, at)
                address += amount * step
            elif code == _ADVANCE_LINE:
                amount, at = _leb128(table, at, signed=True)
                line += amount
            elif code == _CONST_ADD_ADDRESS:
                address += (255 - first) // span * step
            elif code == _FIXED_ADVANCE_ADDRESS:
                address += int.from_bytes(table[at : at + 2], "little")
                at += 2
            else:
                for _ in range(operands[code - 1]):
                    _, at = _leb128(table, at)


def _leb128(data: bytes, at: int, signed: bool = False) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at = at + 1
        shift = shift + 7
        if byte < 0x80:
            return number - (1 << shift) * (signed and byte >= 0x40), at
