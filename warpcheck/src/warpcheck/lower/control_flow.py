"""Analyze the control flow of a kernel: basic blocks, and the registers that are live between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warpcheck import isa_availability
from warpcheck.errors import Rejected, Unsupported
from warpcheck.lower.inlining import Inliner
from warpcheck.op import Lanes, Op, Placement
from warpcheck.ptx import Function, Instruction, Module, Operand, Register, Symbol, Variable

__all__ = ["Block", "Flow", "Ops", "analyze", "dominators", "predecessors", "reachable"]

Ops = Mapping[str, Op[Any]]
# Patterns of instructions that the machine lacks on purpose, and what the message says about them.
_HINTS = (
    (r"(tex|tld4|txq|suld|sust|sured|suq|istypep)\b", " (textures and surfaces: load from a pointer)"),
    (r"tcgen05\.mma\.ws\b", " (weight-stationary products, .ws: the machine has tcgen05.mma without it)"),
    (r"(tcgen05\.mma|mma|wgmma\.mma_async)\.sp\b", " (sparse products: the machine has dense ones alone)"),
    (r"cp\..*\.im2col::w\b", " (wide im2col modes: the machine has im2col alone)"),
)


@dataclass
class Block:
    """A basic block. ``successors`` are block numbers; the last one is the fall-through, if there is one.

    ``operand_names`` has the registers that each instruction reads or writes.
    """

    instructions: list[Instruction]
    operand_names: list[list[str]] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    live_in: set[str] = field(default_factory=set)
    live_out: set[str] = field(default_factory=set)
    loop: bool = False


@dataclass
class Flow:
    """A kernel without calls: its blocks in program order, and everything that they name."""

    blocks: list[Block]
    registers: dict[str, str]
    variables: dict[str, Variable]
    targets: dict[str, int]
    tables: dict[str, tuple[str, ...]]


def analyze(module: Module, kernel: Function, ops: Ops, target: str) -> Flow:
    """Expand calls and split ``kernel`` into blocks.

    Raises:
        Rejected: An instruction that ``target`` does not have, or a call of a function that is not defined.
        Unsupported: Recursion, an indirect call, or an instruction that is not among the ``ops``.
        ValueError: A branch to a label that does not exist.
    """
    inliner = Inliner(module)
    inliner.expand(kernel, {}, ())
    # A kernel with an empty body still needs an entry block.
    inliner.body = inliner.body or [Instruction("ret", (), ())]
    for instruction in inliner.body:
        op = ops.get(instruction.opcode)
        # What ptxas would refuse comes first, in its words: it is a mistake in the kernel, whether the machine knows
        # the instruction or not.
        if refusal := isa_availability.refusal(instruction, target, op.since if op else 0):
            raise Rejected(refusal, module.file, instruction.line)
        if _is_mistyped(instruction, inliner.registers):
            raise Rejected(f"Arguments mismatch for instruction '{instruction.opcode}'", module.file, instruction.line)
        if op is None or not op.accepts(instruction):
            hints = (hint for pattern, hint in _HINTS if re.match(pattern, instruction.name))
            raise Unsupported(instruction.name + next(hints, ""), module.file, instruction.line)
        if unknown_labels := set(_branches_to(instruction, inliner.tables)) - inliner.labels.keys():
            raise ValueError(f"line {instruction.line}: no label {unknown_labels.pop()}")
    # From here on labels are block numbers; a label at the end of the code is the number after the last block.
    starts = _block_starts(inliner.body, inliner.labels, inliner.tables, ops)
    block_numbers = {start: index for index, start in enumerate(starts)}
    ends = [*starts[1:], len(inliner.body)]
    targets = {
        label: block_numbers[position] for label, position in inliner.labels.items() if position in block_numbers
    }
    blocks = [Block(inliner.body[start:end]) for start, end in zip(starts, ends, strict=True)]
    for index, block in enumerate(blocks):
        block.successors = _successors(block, index, len(blocks), targets, inliner.tables, ops)
    # A back edge leads to the same or an earlier block in program order: its target may end a time slice.
    for index, block in enumerate(blocks):
        for successor in block.successors:
            blocks[successor].loop |= successor <= index
    _liveness(blocks, ops)
    return Flow(blocks, inliner.registers, inliner.variables, targets, inliner.tables)


def _is_mistyped(instruction: Instruction, registers: Mapping[str, str]) -> bool:
    """Return whether a tf32 goes to a register with a type: to PTX it is 32 bits without a type."""
    if instruction.opcode != "cvt" or "tf32" not in instruction.modifiers:
        return False
    # ptxas refuses a .f32 target: "Arguments mismatch".
    target = instruction.operands[0]
    return isinstance(target, Register) and registers.get(target.name, "b32") != "b32"


def reachable(blocks: Sequence[Block], starts: Iterable[int]) -> set[int]:
    """Return the blocks that are reachable from others, in one step or more."""
    reached: set[int] = set()
    worklist = list(starts)
    while worklist:
        for successor in blocks[worklist.pop()].successors:
            if successor not in reached:
                reached.add(successor)
                worklist.append(successor)
    return reached


def predecessors(blocks: Sequence[Block]) -> list[list[int]]:
    """Return the direct predecessors of each block."""
    result: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for successor in set(block.successors):
            result[successor].append(number)
    return result


def dominators(blocks: Sequence[Block]) -> list[int]:
    """Return the immediate dominator of each block, by the algorithm of Cooper, Harvey and Kennedy."""
    # nearest[b] is the present estimate of b's immediate dominator, -1 before b is processed. Two dominators are
    # intersected by walking up from the one that is later in reverse postorder.
    nearest: list[int] = [-1] * len(blocks)
    nearest[0] = 0
    order = reverse_postorder(blocks)
    predecessors_of = predecessors(blocks)
    rank = {block: number for number, block in enumerate(order)}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            common, *other_predecessors = [
                predecessor for predecessor in predecessors_of[block] if nearest[predecessor] >= 0
            ]
            for candidate in other_predecessors:
                while common != candidate:
                    if rank[common] > rank[candidate]:
                        common = nearest[common]
                    else:
                        candidate = nearest[candidate]
            changed |= nearest[block] != common
            nearest[block] = common
    # Blocks that are not reachable keep -1: the entry counts as their dominator.
    return [max(block, 0) for block in nearest]


def reverse_postorder(blocks: Sequence[Block]) -> list[int]:
    """Return the reachable blocks, each before its successors except along back edges."""
    order: list[int] = []
    visited = {0}
    stack = [(0, iter(blocks[0].successors))]
    while stack:
        block, successors = stack[-1]
        following = next((successor for successor in successors if successor not in visited), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            visited.add(following)
            stack.append((following, iter(blocks[following].successors)))
    return order[::-1]


def _branches_to(i: Instruction, tables: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the labels that an instruction may branch to."""
    if i.opcode not in ("bra", "brx"):
        return ()
    target = i.operands[-1] if i.operands else None
    if not isinstance(target, Symbol) or (i.opcode == "brx" and target.name not in tables):
        raise ValueError(f"line {i.line}: {i.name} without a label")
    return tables[target.name] if i.opcode == "brx" else (target.name,)


def _block_starts(
    body: list[Instruction], labels: dict[str, int], tables: dict[str, tuple[str, ...]], ops: Ops
) -> list[int]:
    """Return where blocks begin: at branch targets, and where lanes may have to wait for each other.

    A collective instruction begins a block, because its lanes wait at the beginning of a block. Consecutive ones that
    need the same lanes share a block.
    """
    starts = {0} | {labels[name] for i in body for name in _branches_to(i, tables)}
    current_lanes: Lanes | Operand = Lanes.NONE
    for index, instruction in enumerate(body):
        op = ops[instruction.opcode]
        # Further lanes may arrive at a branch target, so the next collective instruction has to wait again.
        if index in starts:
            current_lanes = Lanes.NONE
        lanes = op.lanes(instruction)
        if op.placement_of(instruction) is Placement.ALONE or lanes not in (Lanes.NONE, current_lanes):
            starts.add(index)
        if lanes is not Lanes.NONE:
            current_lanes = lanes
        # The mask register gets a new value: the next instruction that names it may need other lanes.
        if isinstance(current_lanes, Register) and current_lanes.name in op.written(instruction):
            current_lanes = Lanes.NONE
        if op.placement_of(instruction) is not Placement.ANYWHERE:
            starts.add(index + 1)
    return sorted(start for start in starts if start < len(body))


def _successors(
    block: Block, index: int, count: int, targets: dict[str, int], tables: dict[str, tuple[str, ...]], ops: Ops
) -> list[int]:
    last = block.instructions[-1]
    jumps = [targets.get(name, count) for name in _branches_to(last, tables)]
    # LAST is for branches and exits, behind which only lanes go on whose guard is false.
    falls_through = ops[last.opcode].placement_of(last) is not Placement.LAST or last.guard is not None
    successors = jumps + [index + 1] * falls_through
    # A number behind the last block is the end of the kernel, which has no block.
    return [successor for successor in successors if successor < count]


def _liveness(blocks: list[Block], ops: Ops) -> None:
    """Compute live registers, backward: a block's live-in is what it reads before writing, or passes on."""
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
            block.operand_names.append(inputs + results)
        reads.append(read)
        writes.append(written)
    # To a fixed point; blocks in reverse order need few passes.
    changed = True
    while changed:
        changed = False
        for index in reversed(range(len(blocks))):
            block = blocks[index]
            block.live_out = set().union(*(blocks[successor].live_in for successor in block.successors))
            live_in = reads[index] | (block.live_out - writes[index])
            changed |= live_in != block.live_in
            block.live_in = live_in
