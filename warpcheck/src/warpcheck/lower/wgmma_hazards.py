"""Find the instructions that may use a register too early that a wgmma has in flight.

A register of D is written, and a register of A is read, from wgmma.mma_async until the wgmma.wait_group that covers its
group. Until then only products of the same shape may use D. What a thread writes to a register is not visible to wgmma
before a wgmma.fence. ``mov`` renames: its results have the marks of its sources, because compilers copy accumulators in
flight, and ptxas coalesces the copies into one register.

This is a forward data-flow analysis over all paths. At run time ``runtime.warpgroup.hazard`` decides whether the wgmma
really is in flight. PTX ISA manual, section 9.7.15.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from warpcheck.layout import OVERWRITTEN, POSITION, UNFENCED, USED
from warpcheck.lower.control_flow import Flow, Ops
from warpcheck.lower.load_liveness import ProgramPoint
from warpcheck.op import registers
from warpcheck.ptx import Group, Immediate, Instruction

__all__ = ["HAZARD", "Hazard", "hazards"]

HAZARD = "wgmma_hazard"  # an opcode of our own: the check for a hazard at run time
OLDEST = 9  # the age at which groups are no longer distinguished: wait_group allows fewer
# PTX ISA, "wgmma.fence": required before the first wgmma.mma_async of a warpgroup.
EVERY = ""  # the mark of all registers: the first wgmma of a kernel needs a fence, whatever it reads
# The kind of a mark: part of D in flight, a copy of one, part of A in flight; or written and not fenced.
SUM = "d"
COPY = "c"
FACTOR = "a"
WRITTEN = "w"


class Mark(NamedTuple):
    """A mark of a register: the instruction, its shape, and how many groups ago it was committed, 0 for not yet."""

    kind: str
    point: ProgramPoint
    shape: str = ""
    age: int = 0


class Hazard(NamedTuple):
    """A possible fault of an instruction, and the packed position of the wgmma it conflicts with."""

    kind: int
    position: int


Marks = dict[str, frozenset[Mark]]


def hazards(flow: Flow, ops: Ops) -> dict[ProgramPoint, set[Hazard]]:
    """Return the hazards of each instruction that has any."""
    everything = [i for block in flow.blocks for i in block.instructions]
    if not any(_is_wgmma(i, "mma_async") for i in everything):
        return {}
    tracked = _tracked_registers(everything)
    # At the entry every register counts as written and not fenced.
    entries: dict[int, Marks] = {0: {EVERY: frozenset([Mark(WRITTEN, ProgramPoint(0, 0))])}}
    result: dict[ProgramPoint, set[Hazard]] = {}
    # Forward to a fixed point: where paths join, marks are united, so they only grow.
    worklist = [0]
    while worklist:
        number = worklist.pop()
        marks = dict(entries[number])
        for position, i in enumerate(flow.blocks[number].instructions):
            point = ProgramPoint(number, position)
            for hazard in _transfer(point, i, ops, marks, tracked):
                result.setdefault(point, set()).add(hazard)
        for successor in flow.blocks[number].successors:
            merged = _merge(entries.get(successor), marks)
            if merged is not None:
                entries[successor] = merged
                worklist.append(successor)
    return result


def _tracked_registers(instructions: Iterable[Instruction]) -> set[str]:
    """Return the registers of wgmma, and those that ``mov`` copies from or to them."""
    tracked: set[str] = set()
    moves = []
    for i in instructions:
        if _is_wgmma(i, "mma_async"):
            tracked.update(registers([i.operands[0], *_factors(i)]))
        elif i.opcode == "mov":
            moves.append((registers(i.operands[:1]), registers(i.operands[1:])))
    size = -1
    while size != len(tracked):
        size = len(tracked)
        for targets, sources in moves:
            if not tracked.isdisjoint([*targets, *sources]):
                tracked.update(targets, sources)
    return tracked


def _transfer(point: ProgramPoint, i: Instruction, ops: Ops, marks: Marks, tracked: set[str]) -> Iterator[Hazard]:
    """Yield the hazards of an instruction, and update ``marks`` to what holds after it."""
    if i.opcode == "wgmma":
        yield from _transfer_wgmma(point, i, marks)
        return
    op = ops[i.opcode]
    written = [name for name in op.written(i) if name in tracked]
    # A copy of D has its marks, and A's registers are free to be copied.
    if i.opcode == "mov":
        moved = frozenset(mark for name in registers(i.operands[1:]) for mark in marks.get(name, ()))
        moved = frozenset(
            mark._replace(kind=COPY) if mark.kind == SUM else mark for mark in moved if mark.kind != FACTOR
        )
    else:
        for name in op.read(i):
            # A guarded instruction reads its own results only to preserve them, which uses no value.
            if name in marks and not (name in written and name not in registers(i.operands[op.results :])):
                yield from (_hazard(USED, mark) for mark in marks[name] if mark.kind in (SUM, COPY))
        # Writing to a copy harms nothing: only the registers that wgmma names are in flight.
        for name in written:
            yield from (_hazard(OVERWRITTEN, mark) for mark in marks.get(name, ()) if mark.kind in (SUM, FACTOR))
        moved = frozenset([Mark(WRITTEN, point)])
    for name in written:
        # Lanes whose guard is false keep the old value, and so its marks.
        _set_marks(marks, name, moved if i.guard is None else moved | marks.get(name, frozenset()))


def _transfer_wgmma(point: ProgramPoint, i: Instruction, marks: Marks) -> Iterator[Hazard]:
    match i.modifiers[0]:
        case "mma_async":
            shape = ".".join(i.modifiers[3:])
            sums = registers(i.operands[:1])
            factors = registers(_factors(i))
            yield from (_hazard(UNFENCED, mark) for mark in marks.get(EVERY, ()))
            for name in sums:
                for mark in marks.get(name, ()):
                    # PTX ISA, "wgmma.fence": no fence or wait is needed between products of the same shape that
                    # accumulate in the same registers. Any other use of D's registers needs one.
                    if mark.kind == WRITTEN:
                        yield _hazard(UNFENCED, mark)
                    elif mark.kind == FACTOR or mark.shape != shape:
                        yield _hazard(OVERWRITTEN, mark)
            for name in factors:
                for mark in marks.get(name, ()):
                    if mark.kind != FACTOR:
                        yield _hazard(UNFENCED if mark.kind == WRITTEN else USED, mark)
            for name in factors:
                # Several products may read one register of A at once. Of D the last is enough: groups end in order.
                _set_marks(marks, name, marks.get(name, frozenset()) | {Mark(FACTOR, point)})
            for name in sums:
                _set_marks(marks, name, frozenset([Mark(SUM, point, shape)]))
        case "commit_group":
            _update_all(
                marks, lambda mark: mark if mark.kind == WRITTEN else mark._replace(age=min(mark.age + 1, OLDEST))
            )
        case "wait_group":
            (allowed,) = i.operands
            assert isinstance(allowed, Immediate)
            # PTX ISA, "wgmma.wait_group": N or fewer of the most recent groups are pending afterwards. What is not
            # committed yet has age 0 and stays in flight.
            max_age = allowed.value
            _update_all(marks, lambda mark: mark if mark.kind == WRITTEN or mark.age <= max_age else None)
        case "fence":
            _update_all(marks, lambda mark: None if mark.kind == WRITTEN else mark)


def _factors(i: Instruction) -> list[Group]:
    """Return A, if it is in registers."""
    return [operand for operand in i.operands[1:2] if isinstance(operand, Group)]


def _set_marks(marks: Marks, name: str, new_marks: frozenset[Mark]) -> None:
    if new_marks:
        marks[name] = new_marks
    else:
        marks.pop(name, None)


def _update_all(marks: Marks, rule: Callable[[Mark], Mark | None]) -> None:
    """Replace every mark by what ``rule`` makes of it."""
    changed: dict[frozenset[Mark], frozenset[Mark]] = {}
    for name, old_marks in list(marks.items()):
        if old_marks not in changed:
            changed[old_marks] = frozenset(new_mark for mark in old_marks if (new_mark := rule(mark)) is not None)
        _set_marks(marks, name, changed[old_marks])


def _merge(existing: Marks | None, arriving: Marks) -> Marks | None:
    """Return the union of marks where two paths join; None if the second path adds nothing."""
    if existing is None:
        return dict(arriving)
    additions = {name: marks for name, marks in arriving.items() if not marks <= existing.get(name, frozenset())}
    return (
        {**existing, **{name: existing.get(name, frozenset()) | marks for name, marks in additions.items()}}
        if additions
        else None
    )


def _hazard(kind: int, mark: Mark) -> Hazard:
    return Hazard(kind, mark.point.block << POSITION | mark.point.position)


def _is_wgmma(i: Instruction, variant: str) -> bool:
    return i.opcode == "wgmma" and i.modifiers[0] == variant
