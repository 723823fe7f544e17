"""Which bytes of its parameters a kernel never reads: a struct's padding, in which the host leaves what was there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from warpcheck.ptx.records import SIZES, Address, Function, Group, Operand, Symbol

__all__ = ["unread"]


def unread(kernel: Function) -> list[frozenset[int]]:
    """For each parameter the offsets of bytes that no load takes; none where its address is used in another way."""
    left = {parameter.name: set(range(parameter.size)) for parameter in kernel.params}
    for instruction in kernel.body:
        for operand in _flat(instruction.operands):
            match operand:
                case Address(Symbol(name, start), offset) if name in left and instruction.opcode == "ld":
                    parts = next((int(one[1:]) for one in instruction.modifiers if one in ("v2", "v4", "v8")), 1)
                    size = parts * SIZES[instruction.modifiers[-1]]
                    left[name] -= set(range(start + offset, start + offset + size))
                case Address(Symbol(name)) | Symbol(name) if name in left:
                    left[name].clear()
    return [frozenset(left[parameter.name]) for parameter in kernel.params]


def _flat(operands: Iterable[Operand]) -> Iterator[Operand]:
    for operand in operands:
        if isinstance(operand, Group):
            yield from _flat(operand.items)
        else:
            yield operand
