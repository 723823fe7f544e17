"""Read the parts of ELF and DWARF that a cubin needs: its sections, and its line tables."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Section", "line_rows", "sections"]

# Offsets in the file header of ELF64, and a section header. Source: the ELF specification, Elf64_Ehdr and Elf64_Shdr.
_SECTIONS_AT = 0x28
_SECTION_COUNTS_AT = 0x3A
_SECTION = struct.Struct("<IIQQQQIIQQ")

_NO_BYTES = 8  # SHT_NOBITS: memory that begins as zeros


@dataclass(frozen=True)
class Section:
    """A section: its name and its bytes."""

    name: str
    content: bytes


def sections(elf: bytes) -> list[Section]:
    """Return the sections of an ELF file, by their numbers."""
    (table,) = struct.unpack_from("<Q", elf, _SECTIONS_AT)
    size, count, names = struct.unpack_from("<HHH", elf, _SECTION_COUNTS_AT)
    headers = [_SECTION.unpack_from(elf, table + size * index) for index in range(count)]
    result = []
    for name, kind, _, _, start, length, *_ in headers:
        name_offset = headers[names][4] + name
        content = b"" if kind == _NO_BYTES else elf[start : start + length]
        result.append(Section(elf[name_offset : elf.index(b"\0", name_offset)].decode(), content))
    return result


_COPY = 1
_ADVANCE_ADDRESS = 2
_ADVANCE_LINE = 3
_CONST_ADD_ADDRESS = 8
_FIXED_ADVANCE_ADDRESS = 9
_END_SEQUENCE = 1


def line_rows(table: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the rows of a line table: the number of their sequence, an address in it, a line.

    Source: the DWARF 2 specification, 6.2, whose statement programs ptxas writes.
    """
    position = 0
    sequence = 0
    while position < len(table):
        length, version, header = struct.unpack_from("<IHI", table, position)
        end = position + 4 + length
        program = position + 10 + header
        # From version 4 on the header has one field more, maximum_operations_per_instruction.
        fields = position + 10 + (version >= 4)
        step, _, base, span, first = struct.unpack_from("<BBbBB", table, fields)
        operands = table[fields + 5 : fields + 5 + first - 1]
        address = 0
        line = 1
        position = program
        while position < end:
            code = table[position]
            position += 1
            # A special opcode advances address and line together (DWARF 2, 6.2.5.1).
            if code >= first:
                address += (code - first) // span * step
                line += base + (code - first) % span
                yield sequence, address, line
            elif code == 0:
                size, position = _leb128(table, position)
                if table[position] == _END_SEQUENCE:
                    address = 0
                    line = 1
                    sequence = sequence + 1
                position += size
            elif code == _COPY:
                yield sequence, address, line
            elif code == _ADVANCE_ADDRESS:
                amount, position = _leb128(table, position)
                address += amount * step
            elif code == _ADVANCE_LINE:
                amount, position = _leb128(table, position, signed=True)
                line += amount
            elif code == _CONST_ADD_ADDRESS:
                address += (255 - first) // span * step
            elif code == _FIXED_ADVANCE_ADDRESS:
                address += int.from_bytes(table[position : position + 2], "little")
                position += 2
            else:
                for _ in range(operands[code - 1]):
                    _, position = _leb128(table, position)


def _leb128(data: bytes, position: int, signed: bool = False) -> tuple[int, int]:
    """Return a number in LEB128, and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position = position + 1
        shift = shift + 7
        if byte < 0x80:
            return number - (1 << shift) * (signed and byte >= 0x40), position
