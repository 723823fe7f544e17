"""The pipeline of an asynchronous kernel: what the warps of its first block or cluster do, and who waits for whom.

A column is one event, in the order in which the PTX machine ran them: that is no time. Warps that do the same share a
row, and the columns are those of the first of them; see ``simt.events`` for what is recorded.

Longer than 300 lines because the chart and its text share their signs and labels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelpath import words
from warpcheck.events import EVENTS, Event, EventKind

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "HEADINGS",
    "LEGEND",
    "Chart",
    "Mark",
    "Stuck",
    "Wait",
    "chart",
    "parts",
    "rows",
    "stage_of",
    "text",
    "waits",
]

LOAD, STORE, LAND, WRITTEN, ARRIVE, MULTIPLY, RUN, EXIT, WAIT, STUCK, READY = "LSv^aM>x.! "

LEGEND = {
    LOAD: "issues a copy to shared memory",
    STORE: "issues a copy from it",
    LAND: "it lands",
    WRITTEN: "it is written",
    ARRIVE: "arrives at a barrier",
    MULTIPLY: "issues wgmma",
    RUN: "begins or goes on",
    EXIT: "exits",
    WAIT: "waits",
    STUCK: "waits when the launch fails",
}
"""What a character of a chart stands for; a blank is a warp that could run and does not have its turn."""

UNIT = "A column is one event, in the order of the PTX machine; its steps are warp instructions, not time on a GPU."
HEADINGS = ("for", "line", "times", "steps")
AVERAGE = "times and steps of each warp, on average; others ran those steps meanwhile"
COLUMNS = 60
"""Of a part of a chart, so that it fits in 80 characters of a terminal."""
PARTS = 4
STAGE = "stage"
"""The label of the row above the chart: the number of the mbarrier that a copy signals or an arrival names."""
WARPGROUP = 4
"""Warps that issue a wgmma together."""
_LABEL = 18
_MARKS = {
    EventKind.LOAD: LOAD,
    EventKind.STORE: STORE,
    EventKind.ARRIVE: ARRIVE,
    EventKind.MULTIPLY: MULTIPLY,
    EventKind.RUN: RUN,
    EventKind.EXIT: EXIT,
}
_TURNS = (EventKind.RUN, EventKind.WAIT, EventKind.PREEMPTED, EventKind.LAND)
_Warp = tuple[int, int]  # the rank of its block in the cluster, and its number there


@dataclass(frozen=True)
class Mark:
    """A column: a character of LEGEND in one row. ``step`` is the machine's; ``after`` the column that ended a wait."""

    row: int
    sign: str
    step: int
    barrier: str
    after: int | None = None


@dataclass(frozen=True)
class Wait:
    """What the warps of a row waited for: how often, and for how many steps, each of them on average."""

    role: str
    awaited: str
    line: int
    times: float
    steps: float


@dataclass(frozen=True)
class Stuck:
    """What the warps of a row wait for at the end of a launch that failed. ``phase``: of the mbarrier, or -1."""

    role: str
    awaited: str
    line: int
    phase: int

    def __str__(self) -> str:
        phase = f", in phase {self.phase}" if self.phase >= 0 else ""
        where = f" in line {self.line}" if self.line else ""
        return f"{self.role} waits{where} for {self.awaited}{phase}"


@dataclass(frozen=True)
class Chart:
    """Labels of the rows, the columns, and for each row a character for each column. ``cut``: there were more.

    ``stages`` has a digit for each column that names an element of an array of mbarriers. ``stuck``, of a launch that
    failed, has a sentence for each row that waits at its end.
    """

    labels: Sequence[str]
    marks: Sequence[Mark]
    rows: Sequence[str]
    waits: Sequence[Wait] = field(repr=False)
    cut: bool = False
    stuck: Sequence[Stuck] = ()
    failed: bool = False

    @property
    def stages(self) -> str:
        return "".join(stage_of(mark.barrier)[-1:] or " " for mark in self.marks)

    @property
    def legend(self) -> dict[str, str]:
        """What those characters stand for that occur."""
        return {sign: meaning for sign, meaning in LEGEND.items() if any(sign in row for row in self.rows)}


def stage_of(barrier: str) -> str:
    """The number of an mbarrier in its array: "1" of "full[1]"; empty where it is in none."""
    _, _, number = barrier.partition(" of block ")[0].rstrip("]").partition("[")
    return number


def chart(events: Sequence[Event], failed: bool = False) -> Chart:
    """Lay out the events of a launch. Raises ValueError where none were recorded.

    failed: whether a fault or a deadlock ended it; then the rows that wait at its end are marked.
    """
    if not events:
        raise ValueError("no events were recorded")
    cut = len(events) == EVENTS
    events = _without_polls(events) if failed else events
    by_warp: dict[_Warp, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind != EventKind.LAND:
            by_warp[event.block, event.warp].append(event)
    roles = _alike(by_warp)
    copying = list(dict.fromkeys(event.block for event in events if event.kind == EventKind.LAND))
    several = len({block for block, _ in by_warp}) > 1
    names = [_role(by_warp[role[0]], events) for role in roles]
    labels = [f"block {block}: TMA" if several else "TMA" for block in sorted(copying)]
    labels += [_label(name, role, several) for name, role in zip(names, roles, strict=True)]
    row_of = {role[0]: len(copying) + place for place, role in enumerate(roles)}
    row_of |= {(block, -1): place for place, block in enumerate(sorted(copying))}
    marks, rows = _columns(events, row_of)
    named = list(zip(labels[len(copying) :], roles, strict=True))
    waits = [wait for label, role in named for wait in _waits(label, role, by_warp)]
    stuck = [one for label, role in named if failed and (one := _stuck(label, by_warp[role[0]]))]
    if stuck:
        waiting = {one.role for one in stuck}
        rows = [_marked(row) if label in waiting else row + READY for label, row in zip(labels, rows, strict=True)]
        marks.append(Mark(labels.index(stuck[0].role), STUCK, events[-1].step, ""))  # the column of the end
    return Chart(labels, marks, rows, waits, cut=cut, stuck=stuck, failed=failed)


def _without_polls(events: Sequence[Event]) -> list[Event]:
    """The events, of each warp up to the wait for an mbarrier that it never leaves, however often it asks again."""
    asks: dict[_Warp, Event] = {}
    again: dict[_Warp, list[int]] = defaultdict(list)
    for place, event in enumerate(events):
        warp = event.block, event.warp
        first = asks.get(warp)
        if event.kind == EventKind.LAND:
            continue
        if event.kind == EventKind.WAIT and _is_mbarrier(event.barrier):
            if first is not None and (first.barrier, first.line, first.phase) == (
                event.barrier,
                event.line,
                event.phase,
            ):
                again[warp].append(place)
            else:
                asks[warp], again[warp] = event, []
        elif event.kind in (EventKind.RUN, EventKind.PREEMPTED):
            again[warp].append(place)
        else:  # it has got further
            asks.pop(warp, None)
            again[warp] = []
    polls = {
        place
        for warp in asks
        for place in again[warp]
        if any(events[other].kind == EventKind.WAIT for other in again[warp])
    }
    return [event for place, event in enumerate(events) if place not in polls]


def _stuck(label: str, own: Sequence[Event]) -> Stuck | None:
    """What a warp waits for at the end; None for one that has exited, or could go on."""
    last = own[-1]
    if last.kind != EventKind.WAIT:
        return None
    return Stuck(label, _awaited(last), last.line, last.phase if _is_mbarrier(last.barrier) else -1)


def _is_mbarrier(barrier: str) -> bool:
    """Whether a name is that of an mbarrier; "barrier 0" is one of the block's own, at which nobody asks again."""
    return bool(barrier) and not barrier.startswith("barrier ")


def _marked(row: str) -> str:
    """A row whose last wait never ends."""
    before = row.rstrip(WAIT)
    return before + STUCK * (len(row) + 1 - len(before))


def _alike(by_warp: dict[_Warp, list[Event]]) -> list[list[_Warp]]:
    """Warps of one block that copy, multiply and arrive alike, in the order of their numbers.

    Of the four that multiply together one may also store what all have computed.
    """
    found: dict[object, list[_Warp]] = {}
    for warp in sorted(by_warp):
        multiplies = any(one.kind == EventKind.MULTIPLY for one in by_warp[warp])
        left_out = (*_TURNS, EventKind.STORE) if multiplies else _TURNS
        deeds = ((one.kind, one.line, one.barrier) for one in by_warp[warp] if one.kind not in left_out)
        warpgroup = warp[1] // WARPGROUP if multiplies else -1  # two warpgroups may drift apart
        found.setdefault((warp[0], warpgroup, *deeds), []).append(warp)
    return list(found.values())


def _role(own: Sequence[Event], events: Sequence[Event]) -> str:
    """What a warp is in a pipeline, as far as that can be seen."""
    landed = {one.barrier for one in events if one.kind == EventKind.LAND}
    loads = any(one.kind == EventKind.LOAD for one in own)
    uses = any(one.kind == EventKind.MULTIPLY or (one.kind == EventKind.PASS and one.barrier in landed) for one in own)
    return "" if loads == uses else "producer" if loads else "consumer"


def _label(name: str, role: Sequence[_Warp], several: bool) -> str:
    numbers = [warp for _, warp in role]
    together = len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1
    told = f"{numbers[0]}-{numbers[-1]}" if together else ",".join(map(str, numbers))
    block = f"{role[0][0]}:" * several
    return f"{name} {block}w{told}" if name else f"{'warps' if len(numbers) > 1 else 'warp'} {block}{told}"


def _columns(events: Sequence[Event], row_of: dict[_Warp, int]) -> tuple[list[Mark], list[str]]:
    """The columns, and the rows as text."""
    marks, rows = list[Mark](), [list[str]() for _ in row_of]
    state = [READY] * len(rows)
    awaited = [(0, "")] * len(rows)
    signaled: dict[tuple[int, str], int] = {}
    for event in events:
        landed = event.kind == EventKind.LAND
        row = row_of.get((event.block, -1 if landed else event.warp))
        if row is None:
            continue
        if event.kind in (EventKind.WAIT, EventKind.PREEMPTED):
            state[row] = WAIT if event.kind == EventKind.WAIT else READY
            awaited[row] = _barrier(event)
            continue
        sign = (LAND if event.barrier else WRITTEN) if landed else _MARKS.get(event.kind, "")
        again = marks and (marks[-1].row, marks[-1].sign) == (row, sign) and sign == MULTIPLY
        if not sign or again:
            continue
        after = signaled.get(awaited[row]) if event.kind == EventKind.RUN else None
        for place, line in enumerate(rows):
            line.append(sign if place == row else state[place])
        if sign in (LAND, ARRIVE):
            signaled[_barrier(event)] = len(marks)
        marks.append(Mark(row, sign, event.step, event.barrier, after))
        state[row], awaited[row] = READY, (0, "")
    return marks, ["".join(line) for line in rows]


def _barrier(event: Event) -> tuple[int, str]:
    """The block that has an event's barrier, and the name that it has there."""
    name, _, block = event.barrier.partition(" of block ")
    return int(block or event.block), name


def _waits(label: str, role: Sequence[_Warp], by_warp: dict[_Warp, list[Event]]) -> Iterator[Wait]:
    found: dict[tuple[str, int], list[int]] = {}
    for warp in role:
        began: Event | None = None
        for event in by_warp[warp]:
            if event.kind == EventKind.WAIT:
                began = event
            elif event.kind == EventKind.RUN and began is not None:
                steps = found.setdefault((_awaited(began), began.line), [])
                steps.append(event.step - began.step)
                began = None
    for (awaited, line), steps in found.items():
        yield Wait(label, awaited, line, len(steps) / len(role), sum(steps) / len(role))


def _awaited(event: Event) -> str:
    """What a warp waits for, in a few words."""
    if event.barrier:
        return event.barrier
    kinds = {"wgmma": "wgmma group", "cp": "its copies", "setmaxnreg": "registers", "barrier": "its cluster"}
    return kinds.get(event.instruction.lstrip("@").partition(".")[0], event.instruction)


def parts(shown: Chart) -> list[range]:
    """The columns of each part of a chart that is too wide for one: the first few, or the last of one that failed."""
    found = [range(at, min(at + COLUMNS, len(shown.marks))) for at in range(0, len(shown.marks), COLUMNS)]
    return found[-PARTS:] if shown.failed else found[:PARTS]


def text(shown: Chart) -> RenderableType:
    """The chart for a terminal of 80 columns, its legend, and the waits."""
    from rich.console import Group
    from rich.text import Text

    lines = list[Text]()
    spans = parts(shown)
    if spans and spans[0].start:
        lines.append(Text(f"{words.count(spans[0].start, 'earlier column')} …\n", "dim"))
    for part in spans:
        lines.append(Text(f"{'':{_LABEL}} step {shown.marks[part.start].step:,}", "dim"))
        if shown.stages.strip():
            lines.append(Text(f"{STAGE:{_LABEL}} {shown.stages[part.start : part.stop]}", "dim"))
        for label, row in zip(shown.labels, shown.rows, strict=True):
            lines.append(Text(f"{label[:_LABEL]:{_LABEL}} {row[part.start : part.stop]}"))
        lines.append(Text(""))
    if spans and spans[-1].stop < len(shown.marks):
        lines.append(Text(f"… and {words.count(len(shown.marks) - spans[-1].stop, 'more column')}\n", "dim"))
    lines += [Text(f"{one}", "bold") for one in shown.stuck]
    if shown.stuck:
        lines.append(Text(""))
    if shown.cut:
        lines.append(Text(f"only the first {EVENTS:,} events were kept\n", "dim"))
    told = "; ".join(f"{sign} {meaning}" for sign, meaning in shown.legend.items())
    return Group(*lines, Text(f"{told}\n{UNIT}\n", "dim"), waits(shown))


def rows(shown: Chart) -> list[tuple[str, list[str]]]:
    """The table of waits: who, and a text for each of HEADINGS."""
    return [
        (one.role, [one.awaited, str(one.line or ""), f"{one.times:.3g}", f"{one.steps:,.0f}"]) for one in shown.waits
    ]


def waits(shown: Chart) -> RenderableType:
    """The table of waits for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if not shown.waits:
        return Text("no warp waits for anything")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("waits")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "for" else "right")
    for role, cells in rows(shown):
        table.add_row(role, *cells)
    return Group(table, Text(AVERAGE, "dim"))
