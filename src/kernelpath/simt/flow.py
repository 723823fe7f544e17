"""Control flow of a kernel: calls expanded in place, basic blocks, and the registers that live between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kernelpath.simt.errors import Unsupported
from kernelpath.simt.ptx import (
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

__all__ = ["SERVICES", "Block", "Flow", "analyse", "argument_register", "results", "sources"]

SERVICES = ("vprintf", "__assertfail")  # functions that the host provides

# Instructions that several lanes execute together. The first in a run of code begins a block: lanes can wait there.
_COLLECTIVE = {"shfl", "vote", "match", "redux", "mma", "wmma", "ldmatrix", "stmatrix", "movmatrix", "bar", "barrier"}
_ENDS_BLOCK = {"bra", "brx", "ret", "exit", "trap"}
_NO_RESULT = {"st", "bra", "brx", "ret", "exit", "trap", "bar", "barrier", "membar", "fence", "red", "call", "prefetch"}
_NO_RESULT |= {"prefetchu", "stmatrix", "nanosleep", "brkpt", "pmevent", "discard", "applypriority", "cp"}


@dataclass
class Block:
    """A basic block. ``successors`` are block numbers; the last is the fall-through where there is one."""

    instructions: list[Instruction]
    successors: list[int] = field(default_factory=list)
    live_in: set[str] = field(default_factory=set)
    live_out: set[str] = field(default_factory=set)
    loop: bool = False


@dataclass
class Flow:
    """A kernel without calls: its blocks in program order and everything that they name."""

    blocks: list[Block]
    registers: dict[str, str]
    variables: dict[str, Variable]
    targets: dict[str, int]
    tables: dict[str, tuple[str, ...]]


def analyse(module: Module, kernel: Function) -> Flow:
    """Expand calls and split ``kernel`` into blocks. Raises Unsupported for recursion and indirect calls."""
    flat = _Inliner(module)
    flat.expand(kernel, {}, ())
    starts = _block_starts(flat.body, flat.labels, flat.tables)
    number = {start: index for index, start in enumerate(starts)}
    ends = [*starts[1:], len(flat.body)]
    targets = {label: number[at] for label, at in flat.labels.items() if at in number}
    blocks = [Block(flat.body[start:end]) for start, end in zip(starts, ends, strict=True)]
    for index, block in enumerate(blocks):
        block.successors = _successors(block, index, len(blocks), targets, flat.tables)
    for index, block in enumerate(blocks):
        for successor in block.successors:
            blocks[successor].loop |= successor <= index
    _liveness(blocks)
    return Flow(blocks, flat.registers, flat.variables, targets, flat.tables)


class _Inliner:
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
                kinds, target = instruction.modifiers[-1:], instruction.operands[:1]
                self.body.append(Instruction("barrier_result", kinds, target, None, instruction.line))
        self.labels |= dict.fromkeys((*at.get(len(function.body), ()), end), len(self.body))

    def _call(self, call: Instruction, callers: tuple[str, ...]) -> None:
        callee, arguments, results = _call_parts(call)
        if callee in SERVICES and call.guard is None:
            self.body.append(call)
            return
        function = self.module.functions.get(callee)
        if function is None or callee in callers:
            what = "recursion" if function else "a call of " + (callee or "a pointer")
            raise Unsupported(f"{call.name} ({what})", self.module.file, call.line)
        self.calls += 1
        own = (*function.registers, *function.variables, *function.labels, *function.tables)
        renamed = {name: f"{name}@call{self.calls}" for name in own}
        formal = (*function.params, *function.results)
        renamed |= {variable.name: name for variable, name in zip(formal, (*arguments, *results), strict=True)}
        after = f"after call {self.calls}"
        if call.guard is not None:
            negated = call.guard.register if isinstance(call.guard, Not) else Not(call.guard)
            self.body.append(Instruction("bra", (), (Symbol(after),), negated, call.line))
        self.expand(function, renamed, callers)
        self.labels[after] = len(self.body)

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


def _call_parts(call: Instruction) -> tuple[str, list[str], list[str]]:
    """The callee, the names of its arguments, and the names of its results."""
    groups = [
        [item.name for item in operand.items if isinstance(item, Symbol)] if isinstance(operand, Group) else None
        for operand in call.operands
    ]
    at = next(index for index, group in enumerate(groups) if group is None)
    callee = call.operands[at]
    arguments = groups[at + 1] if at + 1 < len(groups) else []
    return callee.name if isinstance(callee, Symbol) else "", arguments or [], (groups[0] or []) if at else []


def _rename(instruction: Instruction, names: dict[str, str]) -> Instruction:
    def renamed(operand: Operand) -> Operand:
        match operand:
            case Register(name):
                return Register(names.get(name, name))
            case Not(register):
                return Not(Register(names.get(register.name, register.name)))
            case Symbol(name, offset):
                return Symbol(names.get(name, name), offset)
            case Address(base, offset):
                return Address(renamed(base), offset)  # type: ignore[arg-type]
            case Group(items):
                return Group(tuple(renamed(item) for item in items))
        return operand

    guard = renamed(instruction.guard) if instruction.guard else None
    return replace(instruction, operands=tuple(map(renamed, instruction.operands)), guard=guard)  # type: ignore[arg-type]


def _block_starts(body: list[Instruction], labels: dict[str, int], tables: dict[str, tuple[str, ...]]) -> list[int]:
    jumps = {operand.name for i in body if i.opcode == "bra" for operand in i.operands if isinstance(operand, Symbol)}
    starts = {0} | {labels[name] for name in jumps.union(*tables.values()) if name in labels}
    together = False
    for index, instruction in enumerate(body):
        together &= index not in starts
        collective = instruction.opcode in _COLLECTIVE
        alone = instruction.opcode in ("bar", "barrier", "call")
        if alone or (collective and not together):
            starts.add(index)
        together |= collective
        if alone or instruction.opcode in _ENDS_BLOCK:
            starts.add(index + 1)
    return sorted(start for start in starts if start < len(body))


def _successors(
    block: Block, index: int, count: int, targets: dict[str, int], tables: dict[str, tuple[str, ...]]
) -> list[int]:
    last = block.instructions[-1]
    jumps: list[int] = []
    if last.opcode == "bra":
        jumps = [_target(targets, last.operands[0], count)]
    elif last.opcode == "brx":
        jumps = [_target(targets, Symbol(name), count) for name in tables[last.operands[1].name]]  # type: ignore[union-attr]
    falls_through = last.opcode not in _ENDS_BLOCK or last.guard is not None
    successors = jumps + [index + 1] * falls_through
    return [successor for successor in successors if successor < count]


def _target(targets: dict[str, int], operand: Operand, end: int) -> int:
    assert isinstance(operand, Symbol)
    return targets.get(operand.name, end)


def results(instruction: Instruction) -> list[str]:
    """The registers that an instruction writes."""
    if instruction.opcode in _NO_RESULT or instruction.modifiers[:1] == ("store",):
        return []
    return _registers(instruction.operands[:1])


def sources(instruction: Instruction) -> list[str]:
    """The registers that an instruction reads, its guard and the bases of addresses among them."""
    if instruction.opcode == "call":
        return [argument_register(argument, 0) for argument in _call_parts(instruction)[1]]
    written = len(results(instruction)) > 0
    operands = list(instruction.operands[1:] if written else instruction.operands)
    if instruction.guard is not None:
        operands += [instruction.guard, *(Register(name) for name in results(instruction))]
    return _registers(tuple(operands))


def _registers(operands: tuple[Operand, ...]) -> list[str]:
    found: list[str] = []
    for operand in operands:
        match operand:
            case Register(name) | Not(Register(name)) | Address(Register(name)):
                found.append(name)
            case Group(items):
                found += _registers(items)
    return found


def _liveness(blocks: list[Block]) -> None:
    """Backward data flow: a register lives into a block that reads it before writing it, or passes it on."""
    reads: list[set[str]] = []
    writes: list[set[str]] = []
    for block in blocks:
        read: set[str] = set()
        written: set[str] = set()
        for instruction in block.instructions:
            read.update(name for name in sources(instruction) if name not in written)
            written.update(results(instruction))
        reads.append(read)
        writes.append(written)
    changed = True
    while changed:
        changed = False
        for index in reversed(range(len(blocks))):
            block = blocks[index]
            block.live_out = set().union(*(blocks[successor].live_in for successor in block.successors))
            live_in = reads[index] | (block.live_out - writes[index])
            changed |= live_in != block.live_in
            block.live_in = live_in
