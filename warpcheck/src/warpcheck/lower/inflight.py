"""Registers that a wgmma has in flight: where a kernel may use one too early.

A register of D is written, and one of A in registers is read, from wgmma.mma_async until the wgmma.wait_group that
covers its group. Until then D belongs to products of the same shape alone. What a thread writes to a register is not
for a wgmma before a wgmma.fence. ``mov`` renames: what is known of its sources is known of its results, for compilers
copy sums that are in flight, and the copies become one register of the hardware.

This says what may be by the text of a kernel, whichever way its branches go. ``run.warpgroup`` then asks whether the
wgmma really is in flight. PTX ISA manual, section 9.7.15.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from warpcheck.layout import OVERWRITTEN, POSITION, UNFENCED, USED
from warpcheck.lower.demand import Place
from warpcheck.lower.flow import Flow, Ops
from warpcheck.op import registers
from warpcheck.ptx import Group, Immediate, Instruction

__all__ = ["HAZARD", "Hazard", "hazards"]

HAZARD = "wgmma_hazard"  # the opcode, which PTX does not have, of what looks for one when the kernel runs
OLDEST = 9  # groups begun since: more are not told apart, for wait_group allows fewer
EVERY = ""  # stands for all registers: the first wgmma of a kernel needs a fence, whatever it reads
SUM = "d"
COPY = "c"
FACTOR = "a"
WRITTEN = "w"
"""What a register is: part of D in flight, a copy of one, part of A in flight; or written and not fenced."""


class Mark(NamedTuple):
    """What is known of a register: by which instruction, of which shape, and how many groups ago, 0 for none yet."""

    kind: str
    place: Place
    shape: str = ""
    age: int = 0


class Hazard(NamedTuple):
    """What may be wrong with an instruction, and the number of the place of the other one."""

    kind: int
    other: int


Marks = dict[str, frozenset[Mark]]


def hazards(flow: Flow, ops: Ops) -> dict[Place, set[Hazard]]:
    """The hazards of each instruction that has any."""
    everything = [i for block in flow.blocks for i in block.instructions]
    if not any(_is(i, "mma_async") for i in everything):
        return {}
    followed = _followed(everything)
    entries: dict[int, Marks] = {0: {EVERY: frozenset([Mark(WRITTEN, Place(0, 0))])}}
    found: dict[Place, set[Hazard]] = {}
    waiting = [0]
    while waiting:
        number = waiting.pop()
        marks = dict(entries[number])
        for position, i in enumerate(flow.blocks[number].instructions):
            place = Place(number, position)
            for hazard in _step(place, i, ops, marks, followed):
                found.setdefault(place, set()).add(hazard)
        for successor in flow.blocks[number].successors:
            merged = _merge(entries.get(successor), marks)
            if merged is not None:
                entries[successor] = merged
                waiting.append(successor)
    return found


def _followed(instructions: Iterable[Instruction]) -> set[str]:
    """The registers of wgmma, and those that ``mov`` takes their values from or to."""
    found: set[str] = set()
    moves = []
    for i in instructions:
        if _is(i, "mma_async"):
            found.update(registers([i.operands[0], *_factors(i)]))
        elif i.opcode == "mov":
            moves.append((registers(i.operands[:1]), registers(i.operands[1:])))
    size = -1
    while size != len(found):
        size = len(found)
        for targets, sources in moves:
            if not found.isdisjoint([*targets, *sources]):
                found.update(targets, sources)
    return found


def _step(place: Place, i: Instruction, ops: Ops, marks: Marks, followed: set[str]) -> Iterator[Hazard]:
    """What is wrong with an instruction; changes ``marks`` to what is known behind it."""
    if i.opcode == "wgmma":
        yield from _step_wgmma(place, i, marks)
        return
    op = ops[i.opcode]
    written = [name for name in op.written(i) if name in followed]
    if i.opcode == "mov":
        carried = frozenset(mark for name in registers(i.operands[1:]) for mark in marks.get(name, ()))
        carried = frozenset(
            mark._replace(kind=COPY) if mark.kind == SUM else mark for mark in carried if mark.kind != FACTOR
        )
    else:
        for name in op.read(i):
            if name in marks and not (name in written and name not in registers(i.operands[op.results :])):
                yield from (_hazard(USED, mark) for mark in marks[name] if mark.kind in (SUM, COPY))
        for name in written:
            yield from (_hazard(OVERWRITTEN, mark) for mark in marks.get(name, ()) if mark.kind in (SUM, FACTOR))
        carried = frozenset([Mark(WRITTEN, place)])
    for name in written:
        _set(marks, name, carried if i.guard is None else carried | marks.get(name, frozenset()))


def _step_wgmma(place: Place, i: Instruction, marks: Marks) -> Iterator[Hazard]:
    match i.modifiers[0]:
        case "mma_async":
            shape = ".".join(i.modifiers[3:])
            sums = registers(i.operands[:1])
            factors = registers(_factors(i))
            yield from (_hazard(UNFENCED, mark) for mark in marks.get(EVERY, ()))
            for name in sums:
                for mark in marks.get(name, ()):
                    if mark.kind == WRITTEN:
                        yield _hazard(UNFENCED, mark)
                    elif mark.kind == FACTOR or mark.shape != shape:
                        yield _hazard(OVERWRITTEN, mark)
            for name in factors:
                for mark in marks.get(name, ()):
                    if mark.kind != FACTOR:
                        yield _hazard(UNFENCED if mark.kind == WRITTEN else USED, mark)
            for name in factors:
                _set(marks, name, marks.get(name, frozenset()) | {Mark(FACTOR, place)})
            for name in sums:
                _set(marks, name, frozenset([Mark(SUM, place, shape)]))
        case "commit_group":
            _change(marks, lambda mark: mark if mark.kind == WRITTEN else mark._replace(age=min(mark.age + 1, OLDEST)))
        case "wait_group":
            (allowed,) = i.operands
            assert isinstance(allowed, Immediate)
            most = allowed.value
            _change(marks, lambda mark: mark if mark.kind == WRITTEN or mark.age <= most else None)
        case "fence":
            _change(marks, lambda mark: None if mark.kind == WRITTEN else mark)


def _factors(i: Instruction) -> list[Group]:
    """A, if it is in registers."""
    return [operand for operand in i.operands[1:2] if isinstance(operand, Group)]


def _set(marks: Marks, name: str, known: frozenset[Mark]) -> None:
    if known:
        marks[name] = known
    else:
        marks.pop(name, None)


def _change(marks: Marks, rule: Callable[[Mark], Mark | None]) -> None:
    """Put what the rule makes of it in place of every mark."""
    changed: dict[frozenset[Mark], frozenset[Mark]] = {}
    for name, known in list(marks.items()):
        if known not in changed:
            changed[known] = frozenset(after for mark in known if (after := rule(mark)) is not None)
        _set(marks, name, changed[known])


def _merge(known: Marks | None, arriving: Marks) -> Marks | None:
    """What is known where two ways meet; None where the second adds nothing."""
    if known is None:
        return dict(arriving)
    more = {name: marks for name, marks in arriving.items() if not marks <= known.get(name, frozenset())}
    return {**known, **{name: known.get(name, frozenset()) | marks for name, marks in more.items()}} if more else None


def _hazard(kind: int, mark: Mark) -> Hazard:
    return Hazard(kind, mark.place.block << POSITION | mark.place.position)


def _is(i: Instruction, what: str) -> bool:
    return i.opcode == "wgmma" and i.modifiers[0] == what
