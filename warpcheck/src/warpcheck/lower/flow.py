"""Control flow of a kernel: basic blocks, and the registers that live between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warpcheck import since
from warpcheck.errors import Rejected, Unsupported
from warpcheck.lower.calls import Inliner
from warpcheck.op import Lanes, Op, Place
from warpcheck.ptx import Function, Instruction, Module, Operand, Register, Symbol, Variable

__all__ = ["Block", "Flow", "Ops", "analyze", "dominators", "predecessors", "reached"]

Ops = Mapping[str, Op[Any]]
_TEXTURES = ("tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep")


@dataclass
class Block:
    """A basic block. ``successors`` are block numbers; the last is the fall-through where there is one.

    ``named`` has the registers that each instruction reads or writes.
    """

    instructions: list[Instruction]
    named: list[list[str]] = field(default_factory=list)
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


def analyze(module: Module, kernel: Function, ops: Ops, target: str) -> Flow:
    """Expand calls and split ``kernel`` into blocks.

    Raises Rejected for instructions that ``target`` does not have and for calls of functions that are nowhere;
    Unsupported for recursion, indirect calls, and instructions that are not among the ``ops``; ValueError for a branch
    to nowhere.
    """
    flat = Inliner(module)
    flat.expand(kernel, {}, ())
    flat.body = flat.body or [Instruction("ret", (), ())]
    for instruction in flat.body:
        op = ops.get(instruction.opcode)
        if refused := since.refusal(instruction, target, op.since if op else 0):
            raise Rejected(refused, module.file, instruction.line)
        if _is_mistyped(instruction, flat.registers):
            raise Rejected(f"Arguments mismatch for instruction '{instruction.opcode}'", module.file, instruction.line)
        if op is None or not op.accepts(instruction):
            advice = " (textures and surfaces: load from a pointer)" * (instruction.opcode in _TEXTURES)
            raise Unsupported(instruction.name + advice, module.file, instruction.line)
        if missing := set(_branches_to(instruction, flat.tables)) - flat.labels.keys():
            raise ValueError(f"line {instruction.line}: no label {missing.pop()}")
    starts = _block_starts(flat.body, flat.labels, flat.tables, ops)
    number = {start: index for index, start in enumerate(starts)}
    ends = [*starts[1:], len(flat.body)]
    targets = {label: number[at] for label, at in flat.labels.items() if at in number}
    blocks = [Block(flat.body[start:end]) for start, end in zip(starts, ends, strict=True)]
    for index, block in enumerate(blocks):
        block.successors = _successors(block, index, len(blocks), targets, flat.tables, ops)
    for index, block in enumerate(blocks):
        for successor in block.successors:
            blocks[successor].loop |= successor <= index
    _liveness(blocks, ops)
    return Flow(blocks, flat.registers, flat.variables, targets, flat.tables)


def _is_mistyped(instruction: Instruction, registers: Mapping[str, str]) -> bool:
    """Whether a tf32 goes to a register with a type: to PTX it is 32 bits without one."""
    if instruction.opcode != "cvt" or "tf32" not in instruction.modifiers:
        return False
    to = instruction.operands[0]
    return isinstance(to, Register) and registers.get(to.name, "b32") != "b32"


def reached(blocks: Sequence[Block], starts: Iterable[int]) -> set[int]:
    """The blocks that some others lead to, in one step or more."""
    found: set[int] = set()
    waiting = list(starts)
    while waiting:
        for successor in blocks[waiting.pop()].successors:
            if successor not in found:
                found.add(successor)
                waiting.append(successor)
    return found


def predecessors(blocks: Sequence[Block]) -> list[list[int]]:
    """The blocks that lead to each block in one step."""
    found: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for successor in set(block.successors):
            found[successor].append(number)
    return found


def dominators(blocks: Sequence[Block]) -> list[int]:
    """For each block the nearest that every way to it passes; Cooper, Harvey and Kennedy's algorithm."""
    nearest: list[int] = [-1] * len(blocks)
    nearest[0] = 0
    order = in_order(blocks)
    before = predecessors(blocks)
    rank = {block: number for number, block in enumerate(order)}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            common, *others = [one for one in before[block] if nearest[one] >= 0]
            for other in others:
                while common != other:
                    if rank[common] > rank[other]:
                        common = nearest[common]
                    else:
                        other = nearest[other]
            changed |= nearest[block] != common
            nearest[block] = common
    return [max(block, 0) for block in nearest]


def in_order(blocks: Sequence[Block]) -> list[int]:
    """The blocks that can be reached, each before its successors but for loops."""
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(blocks[0].successors))]
    while stack:
        block, successors = stack[-1]
        following = next((one for one in successors if one not in seen), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(blocks[following].successors)))
    return order[::-1]


def _branches_to(i: Instruction, tables: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The labels that an instruction may branch to."""
    if i.opcode not in ("bra", "brx"):
        return ()
    target = i.operands[-1] if i.operands else None
    if not isinstance(target, Symbol) or (i.opcode == "brx" and target.name not in tables):
        raise ValueError(f"line {i.line}: {i.name} without a label")
    return tables[target.name] if i.opcode == "brx" else (target.name,)


def _block_starts(
    body: list[Instruction], labels: dict[str, int], tables: dict[str, tuple[str, ...]], ops: Ops
) -> list[int]:
    """Where blocks begin. Lanes can wait there, so collective instructions do; a run for the same lanes begins one."""
    starts = {0} | {labels[name] for i in body for name in _branches_to(i, tables)}
    together: Lanes | Operand = Lanes.NONE
    for index, instruction in enumerate(body):
        op = ops[instruction.opcode]
        if index in starts:
            together = Lanes.NONE
        lanes = op.lanes(instruction)
        if op.place_of(instruction) is Place.ALONE or lanes not in (Lanes.NONE, together):
            starts.add(index)
        if lanes is not Lanes.NONE:
            together = lanes
        if isinstance(together, Register) and together.name in op.written(instruction):
            together = Lanes.NONE
        if op.place_of(instruction) is not Place.ANYWHERE:
            starts.add(index + 1)
    return sorted(start for start in starts if start < len(body))


def _successors(
    block: Block, index: int, count: int, targets: dict[str, int], tables: dict[str, tuple[str, ...]], ops: Ops
) -> list[int]:
    last = block.instructions[-1]
    jumps = [targets.get(name, count) for name in _branches_to(last, tables)]
    falls_through = ops[last.opcode].place_of(last) is not Place.LAST or last.guard is not None
    successors = jumps + [index + 1] * falls_through
    return [successor for successor in successors if successor < count]


def _liveness(blocks: list[Block], ops: Ops) -> None:
    """Backward data flow: a register lives into a block that reads it before writing it, or passes it on."""
    reads: list[set[str]] = []
    writes: list[set[str]] = []
    for block in blocks:
        read: set[str] = set()
        written: set[str] = set()
        for instruction in block.instructions:
            inputs = ops[instruction.opcode].read(instruction)
            results = ops[instruction.opcode].written(instruction)
            read.update(name for name in inputs if name not in written)
            written.update(results)
            block.named.append(inputs + results)
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
