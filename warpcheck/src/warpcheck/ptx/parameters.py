"""Find the bytes of its parameters that a kernel never reads, such as a struct's padding, which the host may leave
undefined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from warpcheck.ptx.records import SIZES, Address, Function, Group, Operand, Symbol

__all__ = ["unread"]


def unread(kernel: Function) -> list[frozenset[int]]:
    """Return for each parameter the offsets of bytes that no load reads; none if its address is used in another way."""
    unread_bytes = {parameter.name: set(range(parameter.size)) for parameter in kernel.params}
    for instruction in kernel.body:
        for operand in _flatten(instruction.operands):
            match operand:
                case Address(Symbol(name, start), offset) if name in unread_bytes and instruction.opcode == "ld":
                    # A vector load reads all of its elements.
                    parts = next(
                        (int(modifier[1:]) for modifier in instruction.modifiers if modifier in ("v2", "v4", "v8")), 1
                    )
                    size = parts * SIZES[instruction.modifiers[-1]]
                    unread_bytes[name] -= set(range(start + offset, start + offset + size))
                # Its address is taken, so any byte may be read through a pointer.
                case Address(Symbol(name)) | Symbol(name) if name in unread_bytes:
                    unread_bytes[name].clear()
    return [frozenset(unread_bytes[parameter.name]) for parameter in kernel.params]


def _flatten(operands: Iterable[Operand]) -> Iterator[Operand]:
    for operand in operands:
        if isinstance(operand, Group):
            yield from _flatten(operand.items)
        else:
            yield operand
