"""Find the bytes of its parameters that a kernel never reads, such as a struct's padding, which the host may leave
undefined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from warpcheck.ptx.records import SIZES, Address, Function, Group, Immediate, Instruction, Operand, Register, Symbol
from warpcheck.tensor_map import READ, READ_IM2COL

__all__ = ["clear_bytes", "unread"]

# An address in parameter space: a parameter, and an offset in it.
Place = tuple[str, int]


def unread(kernel: Function) -> list[frozenset[int]]:
    """Return for each parameter the offsets of bytes that nothing reads; none if its address is used in another way.

    Reads are loads from parameter space, and instructions of TMA that get the address of a tensor map in a parameter.
    The addresses are followed through copies and additions of constants.
    """
    unread_bytes = {parameter.name: set(range(parameter.size)) for parameter in kernel.params}
    places: dict[str, Place] = {}  # what registers hold, as far as it is an address of a parameter
    known_places = -1
    # A jump backward may lead to a use that is above the assignment, so the text is read until no register is new.
    while len(places) > known_places:
        known_places = len(places)
        for instruction in kernel.body:
            used = [
                place for place in (_place_of(o, places, unread_bytes) for o in _flatten(instruction.operands)) if place
            ]
            if not used:
                continue
            if target := _moves(instruction, places, unread_bytes):
                places[target[0]] = target[1]
                continue
            nbytes = _bytes_read(instruction)
            for name, start in used:
                # Its address is taken, so any byte may be read through a pointer.
                unread_bytes[name] -= set(range(start, start + nbytes)) if nbytes else unread_bytes[name]
    return [frozenset(unread_bytes[parameter.name]) for parameter in kernel.params]


def clear_bytes(content: bytes, offsets: frozenset[int]) -> bytes:
    """Return the content of a parameter with zeros at these offsets."""
    return bytes(0 if offset in offsets else byte for offset, byte in enumerate(content))


def _place_of(operand: Operand, places: dict[str, Place], parameters: Iterable[str]) -> Place | None:
    match operand:
        case Address(Symbol(name, start), offset) if name in parameters:
            return name, start + offset
        case Symbol(name, start) if name in parameters:
            return name, start
        case Address(Register(name), offset) if name in places:
            return places[name][0], places[name][1] + offset
        case Register(name) if name in places:
            return places[name]
    return None


def _moves(instruction: Instruction, places: dict[str, Place], parameters: Iterable[str]) -> tuple[str, Place] | None:
    """Return the register that gets an address from another operand, and the address; None for other instructions."""
    match instruction.opcode, instruction.operands:
        case "mov" | "cvta", (Register(target), Register() | Symbol() as source):
            place = _place_of(source, places, parameters)
        case "add", (Register(target), Register() as source, Immediate(number)):
            place = _place_of(source, places, parameters)
            place = place and (place[0], place[1] + number)
        case _:
            return None
    # Compilers assign the register of an address once. Otherwise its value depends on the path.
    return (target, place) if place is not None and places.get(target, place) == place else None


def _bytes_read(instruction: Instruction) -> int:
    """Return the bytes that an instruction reads at an address of a parameter; 0 if that is not known."""
    modifiers = instruction.modifiers
    if instruction.opcode == "ld" and "param" in modifiers:
        # A vector load reads all of its elements.
        parts = next((int(modifier[1:]) for modifier in modifiers if modifier in ("v2", "v4", "v8")), 1)
        return parts * SIZES[modifiers[-1]]
    if "tensor" in modifiers or "tensormap" in modifiers:
        return READ_IM2COL if any(modifier.startswith("im2col") for modifier in modifiers) else READ
    return 0


def _flatten(operands: Iterable[Operand]) -> Iterator[Operand]:
    for operand in operands:
        if isinstance(operand, Group):
            yield from _flatten(operand.items)
        else:
            yield operand
