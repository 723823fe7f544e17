"""Expand calls in place: a kernel as one list of instructions."""

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

# An indirect call is expanded once for each candidate, and nested ones multiply: this bounds the code.
MAX_CALLS = 1000


class Inliner:
    """Copies function bodies into one list, with every call replaced by the body of its callee."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.body: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.registers: dict[str, str] = {}
        self.variables: dict[str, Variable] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.calls = 0
        self.pieces: dict[str, dict[int, int]] = {}  # of each argument or result: the offsets and sizes in use

    def expand(self, function: Function, new_names: dict[str, str], callers: tuple[str, ...]) -> None:
        """Append ``function``. ``renamed`` gives the new names of its registers, variables, labels and parameters."""
        end = f"end of {function.name} {self.calls}"
        for name, kind in function.registers.items():
            self.registers[new_names.get(name, name)] = kind
        for name, variable in function.variables.items():
            self.variables[new_names.get(name, name)] = variable
        for name, targets in function.tables.items():
            self.tables[new_names.get(name, name)] = tuple(new_names.get(target, target) for target in targets)
        labels_at: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            labels_at.setdefault(index, []).append(new_names.get(label, label))
        for index, instruction in enumerate(function.body):
            self.labels |= dict.fromkeys(labels_at.get(index, ()), len(self.body))
            instruction = _rename(instruction, new_names) if new_names else instruction
            if instruction.opcode == "call":
                self._call(instruction, (*callers, function.name))
            elif instruction.opcode == "ret" and callers:
                # Only the kernel's own ret ends threads: a callee's ret jumps behind the copied body. A guard stays on
                # the branch.
                self.body.append(replace(instruction, opcode="bra", modifiers=(), operands=(Symbol(end),)))
            else:
                self.body += self._arguments_in_registers(instruction)
            if instruction.opcode in ("bar", "barrier") and "red" in instruction.modifiers:
                # The barrier ends its block, and the scheduler reduces the predicates when it opens. So a second
                # instruction, in the block where the warp resumes, reads the result.
                kinds = instruction.modifiers[-1:]
                target = instruction.operands[:1]
                self.body.append(Instruction("barrier_result", kinds, target, None, instruction.line))
        self.labels |= dict.fromkeys((*labels_at.get(len(function.body), ()), end), len(self.body))

    def _call(self, call: Instruction, callers: tuple[str, ...]) -> None:
        callee, arguments, results = call_parts(call)
        # These have no body in PTX: on a GPU the driver's runtime serves them, here the host of the machine.
        if callee in SERVICES:
            after = self._emit_skip(call) if call.guard is not None else ""
            self.body.append(replace(call, guard=None))
            # Of the services only malloc leaves a result, in the first row of operands: it is read when the warp
            # resumes.
            if callee == "malloc":
                slot = argument_register(results[0], 0)
                self.registers[slot] = "b64"
                self.body.append(Instruction("service_result", ("b64",), (Register(slot),), None, call.line))
            self.labels |= {after: len(self.body)} if after else {}
            return
        pointer = next((operand for operand in call.operands if isinstance(operand, Register)), None)
        function = self.module.functions.get(callee)
        if function is None and pointer is None:
            raise Rejected(f"Unresolved extern function '{callee}'", self.module.file, call.line)
        # Inlining would not end.
        if callee in callers:
            raise Unsupported(f"{call.name} (recursion)", self.module.file, call.line)
        after = self._emit_skip(call) if call.guard is not None else ""
        if function is not None:
            self._inline(function, arguments, results, callers)
        elif pointer is not None:
            self._call_through(call, pointer, arguments, results, callers)
        self.labels |= {after: len(self.body)} if after else {}

    def _emit_skip(self, call: Instruction) -> str:
        """Emit a branch around a call, which lanes take whose guard is false. Return the label after the call."""
        assert call.guard is not None
        opposite = call.guard.register if isinstance(call.guard, Not) else Not(call.guard)
        after = f"after call {len(self.body)}"
        self.body.append(Instruction("bra", (), (Symbol(after),), opposite, call.line))
        return after

    def _call_through(
        self, call: Instruction, pointer: Register, arguments: list[str], results: list[str], callers: tuple[str, ...]
    ) -> None:
        """Emit a call through a pointer: a test and a call for each function whose address is taken."""
        after = f"after calls {len(self.body)}"
        line = call.line
        # The parser skips .callprototype, so the sizes of parameters and results tell which functions fit.
        sizes = [self.variables[name].size for name in (*arguments, *results)]
        # Callers are left out, because recursion cannot be expanded. Sorted, because the order of a set of strings
        # differs between processes.
        for name in sorted(self.address_taken - set(callers)):
            function = self.module.functions[name]
            if [variable.size for variable in (*function.params, *function.results)] != sizes:
                continue
            if self.calls > MAX_CALLS:
                raise Unsupported(f"{call.name} (so many calls through pointers)", self.module.file, line)
            differs = Register(f"%other{len(self.body)}")
            following = f"next {len(self.body)}"
            self.registers[differs.name] = "pred"
            self.body.append(Instruction("setp", ("ne", "u64"), (differs, pointer, Symbol(name)), None, line))
            self.body.append(Instruction("bra", (), (Symbol(following),), differs, line))
            self._inline(function, arguments, results, callers)
            self.body.append(Instruction("bra", (), (Symbol(after),), None, line))
            self.labels[following] = len(self.body)
        # A pointer to none of the functions: on a GPU, too, the call goes wrong.
        self.body.append(Instruction("trap", (), (), None, line))
        self.labels[after] = len(self.body)

    @cached_property
    def address_taken(self) -> set[str]:
        """Return the functions whose address is taken."""
        targets = {target for variable in self.module.variables.values() for _, target in variable.pointers}
        for function in self.module.functions.values():
            for i in function.body:
                targets |= {
                    operand.name for operand in i.operands if isinstance(operand, Symbol) and i.opcode != "call"
                }
        return targets & self.module.functions.keys()

    def _inline(self, function: Function, arguments: list[str], results: list[str], callers: tuple[str, ...]) -> None:
        # Each inlined copy has names of its own; its parameters are the caller's arguments.
        self.calls += 1
        local_names = (*function.registers, *function.variables, *function.labels, *function.tables)
        new_names = {name: f"{name}@call{self.calls}" for name in local_names}
        parameters = (*function.params, *function.results)
        new_names |= {variable.name: name for variable, name in zip(parameters, (*arguments, *results), strict=True)}
        self.expand(function, new_names, callers)

    def _arguments_in_registers(self, instruction: Instruction) -> list[Instruction]:
        """Replace a load or store of a call's argument by moves: arguments are kept in registers."""
        if instruction.opcode not in ("ld", "st") or instruction.modifiers[:1] != ("param",):
            return [instruction]
        address, value = instruction.operands if instruction.opcode == "st" else reversed(instruction.operands)
        # The braces around a call rename its .param variables with an @ (ptx.parser); the parameters of the kernel keep
        # their names and their memory.
        if not (isinstance(address, Address) and isinstance(address.base, Symbol) and "@" in address.base.name):
            return [instruction]
        kind = instruction.modifiers[-1]
        moves = []
        for index, item in enumerate(value.items if isinstance(value, Group) else (value,)):
            offset = address.offset + index * SIZES[kind]
            self._record_piece(instruction, address.base.name, offset, SIZES[kind])
            slot = Register(argument_register(address.base.name, offset))
            # PTX ISA, 5.2.2: 8-bit types are for ld, st and cvt alone, so a byte is moved in a register of 16 bits.
            self.registers[slot.name] = kind if SIZES[kind] > 1 else "b16"
            operands = (slot, item) if instruction.opcode == "st" else (item, slot)
            moves.append(replace(instruction, opcode="mov", modifiers=(self.registers[slot.name],), operands=operands))
        return moves

    def _record_piece(self, instruction: Instruction, argument: str, offset: int, size: int) -> None:
        """Record a piece of an argument: each piece is a register, so caller and callee must cut it alike."""
        pieces = self.pieces.setdefault(argument, {})
        pieces.setdefault(offset, size)
        if any(start < offset + size and offset < start + pieces[start] for start in pieces.keys() - {offset}):
            size = 0
        if pieces[offset] != size:
            raise Unsupported(f"{instruction.name} (of part of an argument)", self.module.file, instruction.line)


def argument_register(name: str, offset: int) -> str:
    """Return the register that stands for the bytes of a call's argument or result at ``offset``."""
    return f"{name}+{offset}"


def call_parts(call: Instruction) -> tuple[str, list[str], list[str]]:
    """Return the callee, the names of its arguments, and the names of its results."""
    # PTX ISA, "call": (results), callee, (arguments), prototype. Only results and arguments are groups.
    groups = [
        [item.name for item in operand.items if isinstance(item, Symbol)] if isinstance(operand, Group) else None
        for operand in call.operands
    ]
    callee_index = next(index for index, group in enumerate(groups) if group is None)
    callee = call.operands[callee_index]
    arguments = groups[callee_index + 1] if callee_index + 1 < len(groups) else []
    return callee.name if isinstance(callee, Symbol) else "", arguments or [], (groups[0] or []) if callee_index else []


def rename_operand(operand: Operand, names: Mapping[str, str]) -> Operand:
    """Return an operand with its registers, or its symbols, renamed."""
    match operand:
        case Register(name):
            return Register(names.get(name, name))
        case Not(register):
            return Not(Register(names.get(register.name, register.name)))
        case Symbol(name, offset):
            return Symbol(names.get(name, name), offset)
        case Address(base, offset):
            return Address(rename_operand(base, names), offset)  # type: ignore[arg-type]
        case Group(items):
            return Group(tuple(rename_operand(item, names) for item in items))
    return operand


def _rename(instruction: Instruction, names: Mapping[str, str]) -> Instruction:
    operands = tuple(rename_operand(operand, names) for operand in instruction.operands)
    guard = rename_operand(instruction.guard, names) if instruction.guard else None
    return replace(instruction, operands=operands, guard=guard)  # type: ignore[arg-type]
