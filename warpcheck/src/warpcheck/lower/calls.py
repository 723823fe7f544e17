"""Calls expanded in place: a kernel as one list of instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from warpcheck.errors import Rejected, Unsupported
from warpcheck.layout import SERVICES
from warpcheck.ptx import (
    SIZES,
    Address,
    Function,
    Group,
    Instruction,
    Module,
    Not,
    Operand,
    Register,
    Symbol,
    Variable,
)

__all__ = ["Inliner", "argument_register", "call_parts"]

MOST_CALLS = 1000


class Inliner:
    """Copies function bodies into one list, every call replaced by the body of what it calls."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.body: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.registers: dict[str, str] = {}
        self.variables: dict[str, Variable] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.calls = 0
        self.pieces: dict[str, dict[int, int]] = {}  # of each argument or result: the offsets and sizes in use

    def expand(self, function: Function, renamed: dict[str, str], callers: tuple[str, ...]) -> None:
        """Append ``function``. ``renamed`` gives the new names of its registers, variables, labels and parameters."""
        end = f"end of {function.name} {self.calls}"
        for name, kind in function.registers.items():
            self.registers[renamed.get(name, name)] = kind
        for name, variable in function.variables.items():
            self.variables[renamed.get(name, name)] = variable
        for name, targets in function.tables.items():
            self.tables[renamed.get(name, name)] = tuple(renamed.get(target, target) for target in targets)
        at: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            at.setdefault(index, []).append(renamed.get(label, label))
        for index, instruction in enumerate(function.body):
            self.labels |= dict.fromkeys(at.get(index, ()), len(self.body))
            instruction = _rename(instruction, renamed) if renamed else instruction
            if instruction.opcode == "call":
                self._call(instruction, (*callers, function.name))
            elif instruction.opcode == "ret" and callers:
                self.body.append(replace(instruction, opcode="bra", modifiers=(), operands=(Symbol(end),)))
            else:
                self.body += self._arguments_in_registers(instruction)
            if instruction.opcode in ("bar", "barrier") and "red" in instruction.modifiers:
                kinds = instruction.modifiers[-1:]
                target = instruction.operands[:1]
                self.body.append(Instruction("barrier_result", kinds, target, None, instruction.line))
        self.labels |= dict.fromkeys((*at.get(len(function.body), ()), end), len(self.body))

    def _call(self, call: Instruction, callers: tuple[str, ...]) -> None:
        callee, arguments, results = call_parts(call)
        if callee in SERVICES and call.guard is None:
            self.body.append(call)
            if callee == "malloc":
                slot = argument_register(results[0], 0)
                self.registers[slot] = "b64"
                self.body.append(Instruction("service_result", ("b64",), (Register(slot),), None, call.line))
            return
        pointer = next((operand for operand in call.operands if isinstance(operand, Register)), None)
        function = self.module.functions.get(callee)
        if function is None and pointer is None:
            raise Rejected(f"Unresolved extern function '{callee}'", self.module.file, call.line)
        if callee in callers:
            raise Unsupported(f"{call.name} (recursion)", self.module.file, call.line)
        after = self._skipped(call) if call.guard is not None else ""
        if function is not None:
            self._inline(function, arguments, results, callers)
        elif pointer is not None:
            self._call_through(call, pointer, arguments, results, callers)
        self.labels |= {after: len(self.body)} if after else {}

    def _skipped(self, call: Instruction) -> str:
        """Branch round a call that its guard forbids. Returns the label behind it."""
        assert call.guard is not None
        negated = call.guard.register if isinstance(call.guard, Not) else Not(call.guard)
        after = f"after call {len(self.body)}"
        self.body.append(Instruction("bra", (), (Symbol(after),), negated, call.line))
        return after

    def _call_through(
        self, call: Instruction, pointer: Register, arguments: list[str], results: list[str], callers: tuple[str, ...]
    ) -> None:
        """A call of a pointer: of each function in turn whose address that may be."""
        after = f"after calls {len(self.body)}"
        line = call.line
        sizes = [self.variables[name].size for name in (*arguments, *results)]
        for name in sorted(self.taken - set(callers)):
            function = self.module.functions[name]
            if [one.size for one in (*function.params, *function.results)] != sizes:
                continue
            if self.calls > MOST_CALLS:
                raise Unsupported(f"{call.name} (so many calls through pointers)", self.module.file, line)
            other = Register(f"%other{len(self.body)}")
            following = f"next {len(self.body)}"
            self.registers[other.name] = "pred"
            self.body.append(Instruction("setp", ("ne", "u64"), (other, pointer, Symbol(name)), None, line))
            self.body.append(Instruction("bra", (), (Symbol(following),), other, line))
            self._inline(function, arguments, results, callers)
            self.body.append(Instruction("bra", (), (Symbol(after),), None, line))
            self.labels[following] = len(self.body)
        self.body.append(Instruction("trap", (), (), None, line))
        self.labels[after] = len(self.body)

    @cached_property
    def taken(self) -> set[str]:
        """The functions whose address is taken."""
        found = {target for variable in self.module.variables.values() for _, target in variable.pointers}
        for function in self.module.functions.values():
            for i in function.body:
                found |= {operand.name for operand in i.operands if isinstance(operand, Symbol) and i.opcode != "call"}
        return found & self.module.functions.keys()

    def _inline(self, function: Function, arguments: list[str], results: list[str], callers: tuple[str, ...]) -> None:
        self.calls += 1
        own = (*function.registers, *function.variables, *function.labels, *function.tables)
        renamed = {name: f"{name}@call{self.calls}" for name in own}
        formal = (*function.params, *function.results)
        renamed |= {variable.name: name for variable, name in zip(formal, (*arguments, *results), strict=True)}
        self.expand(function, renamed, callers)

    def _arguments_in_registers(self, instruction: Instruction) -> list[Instruction]:
        """Arguments of calls are given registers: a load or store of one becomes a mov."""
        if instruction.opcode not in ("ld", "st") or instruction.modifiers[:1] != ("param",):
            return [instruction]
        place, value = instruction.operands if instruction.opcode == "st" else reversed(instruction.operands)
        if not (isinstance(place, Address) and isinstance(place.base, Symbol) and "@" in place.base.name):
            return [instruction]
        kind = instruction.modifiers[-1]
        moves = []
        for index, item in enumerate(value.items if isinstance(value, Group) else (value,)):
            offset = place.offset + index * SIZES[kind]
            self._take_piece(instruction, place.base.name, offset, SIZES[kind])
            slot = Register(argument_register(place.base.name, offset))
            self.registers[slot.name] = kind if SIZES[kind] > 1 else "b16"
            operands = (slot, item) if instruction.opcode == "st" else (item, slot)
            moves.append(replace(instruction, opcode="mov", modifiers=(self.registers[slot.name],), operands=operands))
        return moves

    def _take_piece(self, instruction: Instruction, argument: str, offset: int, size: int) -> None:
        """Each piece of an argument is a register, so caller and callee must cut it alike."""
        pieces = self.pieces.setdefault(argument, {})
        pieces.setdefault(offset, size)
        if any(start < offset + size and offset < start + pieces[start] for start in pieces.keys() - {offset}):
            size = 0
        if pieces[offset] != size:
            raise Unsupported(f"{instruction.name} (of part of an argument)", self.module.file, instruction.line)


def argument_register(name: str, offset: int) -> str:
    """The register that stands for the bytes of a call's argument or result from ``offset`` on."""
    return f"{name}+{offset}"


def call_parts(call: Instruction) -> tuple[str, list[str], list[str]]:
    """The callee, the names of its arguments, and the names of its results."""
    groups = [
        [item.name for item in operand.items if isinstance(item, Symbol)] if isinstance(operand, Group) else None
        for operand in call.operands
    ]
    at = next(index for index, group in enumerate(groups) if group is None)
    callee = call.operands[at]
    arguments = groups[at + 1] if at + 1 < len(groups) else []
    return callee.name if isinstance(callee, Symbol) else "", arguments or [], (groups[0] or []) if at else []


def renamed(operand: Operand, names: Mapping[str, str]) -> Operand:
    """An operand with other registers, or other symbols, by their names."""
    match operand:
        case Register(name):
            return Register(names.get(name, name))
        case Not(register):
            return Not(Register(names.get(register.name, register.name)))
        case Symbol(name, offset):
            return Symbol(names.get(name, name), offset)
        case Address(base, offset):
            return Address(renamed(base, names), offset)  # type: ignore[arg-type]
        case Group(items):
            return Group(tuple(renamed(item, names) for item in items))
    return operand


def _rename(instruction: Instruction, names: Mapping[str, str]) -> Instruction:
    operands = tuple(renamed(operand, names) for operand in instruction.operands)
    guard = renamed(instruction.guard, names) if instruction.guard else None
    return replace(instruction, operands=operands, guard=guard)  # type: ignore[arg-type]
