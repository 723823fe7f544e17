"""Chart the pipeline of an asynchronous kernel: what the warps of its first block or cluster do and wait for.

A column is one event, in the order in which the PTX machine ran them, which is no time. Warps with the same events
share a row, and the columns are those of the first of them; see ``simt.events`` for what is recorded.
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
    "EventMark",
    "StuckWarps",
    "WaitSummary",
    "chart",
    "parts",
    "rows",
    "stage_of",
    "text",
    "waits",
]

LOAD, STORE, LAND, WRITTEN, ARRIVE, MULTIPLY, RUN, EXIT, WAIT, STUCK, READY = "LSv^aM>x.! "

# The meaning of each character of a chart. A blank is a warp that could run and does not have its turn.
LEGEND = {
    LOAD: "issues a copy to shared memory",
    STORE: "issues a copy from it",
    LAND: "it lands",
    WRITTEN: "it is written",
    ARRIVE: "arrives at a barrier",
    MULTIPLY: "issues wgmma or tcgen05.mma",
    RUN: "begins or goes on",
    EXIT: "exits",
    WAIT: "waits",
    STUCK: "waits when the launch fails",
}

UNIT = "A column is one event, in the order of the PTX machine; its steps are warp instructions, not time on a GPU."
HEADINGS = ("for", "line", "times", "steps")
AVERAGE = "times and steps of each warp, on average; others ran those steps meanwhile"

# The columns of a part of a chart, which fits in 80 characters of a terminal.
COLUMNS = 60
MAX_PARTS = 4

# The label of the row above the chart: the index of the mbarrier that a copy signals or an arrival names.
STAGE = "stage"

# The number of warps that issue a wgmma together.
WARPGROUP = 4
_LABEL_WIDTH = 18
_SIGNS = {
    EventKind.LOAD: LOAD,
    EventKind.STORE: STORE,
    EventKind.ARRIVE: ARRIVE,
    EventKind.MULTIPLY: MULTIPLY,
    EventKind.RUN: RUN,
    EventKind.EXIT: EXIT,
}
_SCHEDULING_EVENTS = (EventKind.RUN, EventKind.WAIT, EventKind.PREEMPTED, EventKind.LAND)
_Warp = tuple[int, int]  # the rank of its block in the cluster, and its number there


@dataclass(frozen=True)
class EventMark:
    """A column: a character of LEGEND in one row.

    Attributes:
        step: The step of the machine.
        after: The column that ended a wait.
    """

    row: int
    sign: str
    step: int
    barrier: str
    after: int | None = None


@dataclass(frozen=True)
class WaitSummary:
    """A summary of a row's waits: their target, how often, and for how many steps, each on average per warp."""

    role: str
    awaited: str
    line: int
    times: float
    steps: float


@dataclass(frozen=True)
class StuckWarps:
    """The wait in which the warps of a row are stuck at the end of a launch that failed.

    Attributes:
        phase: The phase of the mbarrier, or -1.
    """

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
    """Labels of the rows, the columns, and for each row a character for each column.

    Attributes:
        cut: Whether there were more events than recorded.
        stuck: For a launch that failed, the rows that wait at its end.
    """

    labels: Sequence[str]
    marks: Sequence[EventMark]
    rows: Sequence[str]
    waits: Sequence[WaitSummary] = field(repr=False)
    cut: bool = False
    stuck: Sequence[StuckWarps] = ()
    failed: bool = False

    @property
    def stages(self) -> str:
        """Return a digit for each column that names an element of an array of mbarriers."""
        return "".join(stage_of(mark.barrier)[-1:] or " " for mark in self.marks)

    @property
    def legend(self) -> dict[str, str]:
        """Return the meaning of the characters that occur."""
        return {sign: meaning for sign, meaning in LEGEND.items() if any(sign in row for row in self.rows)}


def stage_of(barrier: str) -> str:
    """Return the index of an mbarrier in its array: "1" of "full[1]"; empty if it is in no array."""
    _, _, number = barrier.partition(" of block ")[0].rstrip("]").partition("[")
    return number


def chart(events: Sequence[Event], failed: bool = False) -> Chart:
    """Lay out the events of a launch. Raises ValueError if none were recorded.

    Args:
        failed: Whether a fault or a deadlock ended the launch. Then the rows that wait at its end are marked.
    """
    if not events:
        raise ValueError("no events were recorded")
    # This comes before polls are dropped: a full recording would otherwise seem complete.
    cut = len(events) == EVENTS
    events = _drop_polls(events) if failed else events
    # Landings are the TMA unit's, which has a row of its own for each block that copies.
    by_warp: dict[_Warp, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind != EventKind.LAND:
            by_warp[event.block, event.warp].append(event)
    roles = _group_similar_warps(by_warp)
    copying_blocks = list(dict.fromkeys(event.block for event in events if event.kind == EventKind.LAND))
    has_several_blocks = len({block for block, _ in by_warp}) > 1
    names = [_role(by_warp[role[0]], events) for role in roles]
    labels = [f"block {block}: TMA" if has_several_blocks else "TMA" for block in sorted(copying_blocks)]
    labels += [_label(name, role, has_several_blocks) for name, role in zip(names, roles, strict=True)]
    row_of = {role[0]: len(copying_blocks) + index for index, role in enumerate(roles)}
    # Warp -1 stands for the TMA unit of a block.
    row_of |= {(block, -1): index for index, block in enumerate(sorted(copying_blocks))}
    marks, rows = _columns(events, row_of)
    labeled_roles = list(zip(labels[len(copying_blocks) :], roles, strict=True))
    waits = [wait for label, role in labeled_roles for wait in _waits(label, role, by_warp)]
    stuck = [
        stuck_warps
        for label, role in labeled_roles
        if failed and (stuck_warps := _stuck_warps(label, by_warp[role[0]]))
    ]
    if stuck:
        waiting = {stuck_warps.role for stuck_warps in stuck}
        rows = [_mark_stuck(row) if label in waiting else row + READY for label, row in zip(labels, rows, strict=True)]
        marks.append(EventMark(labels.index(stuck[0].role), STUCK, events[-1].step, ""))  # the column of the end
    return Chart(labels, marks, rows, waits, cut=cut, stuck=stuck, failed=failed)


def _drop_polls(events: Sequence[Event]) -> list[Event]:
    """Drop the retries of a wait for an mbarrier that its warp never leaves."""
    first_waits: dict[_Warp, Event] = {}
    retries: dict[_Warp, list[int]] = defaultdict(list)
    for index, event in enumerate(events):
        warp = event.block, event.warp
        first = first_waits.get(warp)
        if event.kind == EventKind.LAND:
            continue
        if event.kind == EventKind.WAIT and _is_mbarrier(event.barrier):
            if first is not None and (first.barrier, first.line, first.phase) == (
                event.barrier,
                event.line,
                event.phase,
            ):
                retries[warp].append(index)
            else:
                first_waits[warp] = event
                retries[warp] = []
        elif event.kind in (EventKind.RUN, EventKind.PREEMPTED):
            retries[warp].append(index)
        else:  # the warp has made progress
            first_waits.pop(warp, None)
            retries[warp] = []
    # Warps that are still in first_waits never left that wait. A run without a wait after it is no retry.
    polls = {
        index
        for warp in first_waits
        for index in retries[warp]
        if any(events[retry_index].kind == EventKind.WAIT for retry_index in retries[warp])
    }
    return [event for index, event in enumerate(events) if index not in polls]


def _stuck_warps(label: str, warp_events: Sequence[Event]) -> StuckWarps | None:
    """Return what a warp waits for at the end; None if it has exited or could go on."""
    last = warp_events[-1]
    if last.kind != EventKind.WAIT:
        return None
    return StuckWarps(label, _describe_awaited(last), last.line, last.phase if _is_mbarrier(last.barrier) else -1)


def _is_mbarrier(barrier: str) -> bool:
    """Return whether a name is an mbarrier's; "barrier 0" is a named barrier of the block, which has no retries."""
    return bool(barrier) and not barrier.startswith("barrier ")


def _mark_stuck(row: str) -> str:
    """Mark a row whose last wait never ends."""
    # The wait at the end of the row is the one that never ends.
    prefix = row.rstrip(WAIT)
    return prefix + STUCK * (len(row) + 1 - len(prefix))


def _group_similar_warps(by_warp: dict[_Warp, list[Event]]) -> list[list[_Warp]]:
    """Group warps of one block with equal copies, multiplications and arrivals, in the order of their numbers.

    One of the four warps of a warpgroup may also store what all have computed.
    """
    groups: dict[object, list[_Warp]] = {}
    for warp in sorted(by_warp):
        multiplies = any(event.kind == EventKind.MULTIPLY for event in by_warp[warp])
        ignored = (*_SCHEDULING_EVENTS, EventKind.STORE) if multiplies else _SCHEDULING_EVENTS
        # When a warp ran or waited depends on the scheduler. What it did does not, and that decides on its group.
        actions = ((event.kind, event.line, event.barrier) for event in by_warp[warp] if event.kind not in ignored)
        warpgroup = warp[1] // WARPGROUP if multiplies else -1  # two warpgroups may drift apart
        groups.setdefault((warp[0], warpgroup, *actions), []).append(warp)
    return list(groups.values())


def _role(warp_events: Sequence[Event], events: Sequence[Event]) -> str:
    """Return a warp's role in a pipeline as far as the events show it."""
    copy_barriers = {event.barrier for event in events if event.kind == EventKind.LAND}
    loads = any(event.kind == EventKind.LOAD for event in warp_events)
    uses = any(
        event.kind == EventKind.MULTIPLY or (event.kind == EventKind.PASS and event.barrier in copy_barriers)
        for event in warp_events
    )
    # A warp that does both, or neither, has no role of a pipeline.
    if loads == uses:
        return ""
    return "producer" if loads else "consumer"


def _label(name: str, role: Sequence[_Warp], has_several_blocks: bool) -> str:
    numbers = [warp for _, warp in role]
    # "w0-3" is shorter than "w0,1,2,3"; the numbers are sorted.
    is_contiguous = len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1
    warp_range = f"{numbers[0]}-{numbers[-1]}" if is_contiguous else ",".join(map(str, numbers))
    block = f"{role[0][0]}:" * has_several_blocks
    return f"{name} {block}w{warp_range}" if name else f"{'warps' if len(numbers) > 1 else 'warp'} {block}{warp_range}"


def _columns(events: Sequence[Event], row_of: dict[_Warp, int]) -> tuple[list[EventMark], list[str]]:
    """Return the columns, and the rows as text."""
    marks = list[EventMark]()
    rows = [list[str]() for _ in row_of]
    state = [READY] * len(rows)
    awaited = [(0, "")] * len(rows)
    # The column of the latest signal of each barrier.
    signaled: dict[tuple[int, str], int] = {}
    for event in events:
        is_landing = event.kind == EventKind.LAND
        row = row_of.get((event.block, -1 if is_landing else event.warp))
        # This warp shares the row of the first warp with its role.
        if row is None:
            continue
        if event.kind in (EventKind.WAIT, EventKind.PREEMPTED):
            state[row] = WAIT if event.kind == EventKind.WAIT else READY
            awaited[row] = _barrier(event)
            continue
        sign = (LAND if event.barrier else WRITTEN) if is_landing else _SIGNS.get(event.kind, "")
        # A warp issues the wgmma of a tile in a row, which one column shows.
        is_repeated = marks and (marks[-1].row, marks[-1].sign) == (row, sign) and sign == MULTIPLY
        if not sign or is_repeated:
            continue
        # The latest landing or arrival at the barrier is the one that lets the warp go on.
        after = signaled.get(awaited[row]) if event.kind == EventKind.RUN else None
        # Each event is a column: its sign in the row of its warp, and in all other rows what their warps do meanwhile.
        for index, line in enumerate(rows):
            line.append(sign if index == row else state[index])
        if sign in (LAND, ARRIVE):
            signaled[_barrier(event)] = len(marks)
        marks.append(EventMark(row, sign, event.step, event.barrier, after))
        state[row] = READY
        awaited[row] = (0, "")
    return marks, ["".join(line) for line in rows]


def _barrier(event: Event) -> tuple[int, str]:
    """Return the block that owns an event's barrier, and the barrier's name there."""
    name, _, block = event.barrier.partition(" of block ")
    return int(block or event.block), name


def _waits(label: str, role: Sequence[_Warp], by_warp: dict[_Warp, list[Event]]) -> Iterator[WaitSummary]:
    steps_by_wait: dict[tuple[str, int], list[int]] = {}
    for warp in role:
        wait_start: Event | None = None
        for event in by_warp[warp]:
            if event.kind == EventKind.WAIT:
                wait_start = event
            elif event.kind == EventKind.RUN and wait_start is not None:
                steps = steps_by_wait.setdefault((_describe_awaited(wait_start), wait_start.line), [])
                steps.append(event.step - wait_start.step)
                wait_start = None
    for (awaited, line), steps in steps_by_wait.items():
        yield WaitSummary(label, awaited, line, len(steps) / len(role), sum(steps) / len(role))


def _describe_awaited(event: Event) -> str:
    """Describe in a few words what a warp waits for."""
    if event.barrier:
        return event.barrier
    kinds = {"wgmma": "wgmma group", "cp": "its copies", "setmaxnreg": "registers", "barrier": "its cluster"}
    return kinds.get(event.instruction.lstrip("@").partition(".")[0], event.instruction)


def parts(chart: Chart) -> list[range]:
    """Return the columns of each part of a wide chart: the first parts, or the last ones if the launch failed."""
    # A chart is wider than a terminal, so it is cut into parts below each other.
    spans = [range(start, min(start + COLUMNS, len(chart.marks))) for start in range(0, len(chart.marks), COLUMNS)]
    return spans[-MAX_PARTS:] if chart.failed else spans[:MAX_PARTS]


def text(chart: Chart) -> RenderableType:
    """Return the chart for a terminal of 80 columns, its legend, and the waits."""
    from rich.console import Group
    from rich.text import Text

    lines = list[Text]()
    spans = parts(chart)
    if spans and spans[0].start:
        lines.append(Text(f"{words.count(spans[0].start, 'earlier column')} …\n", "dim"))
    for part in spans:
        lines.append(Text(f"{'':{_LABEL_WIDTH}} step {chart.marks[part.start].step:,}", "dim"))
        if chart.stages.strip():
            lines.append(Text(f"{STAGE:{_LABEL_WIDTH}} {chart.stages[part.start : part.stop]}", "dim"))
        for label, row in zip(chart.labels, chart.rows, strict=True):
            lines.append(Text(f"{label[:_LABEL_WIDTH]:{_LABEL_WIDTH}} {row[part.start : part.stop]}"))
        lines.append(Text(""))
    if spans and spans[-1].stop < len(chart.marks):
        lines.append(Text(f"… and {words.count(len(chart.marks) - spans[-1].stop, 'more column')}\n", "dim"))
    lines += [Text(f"{stuck_warps}", "bold") for stuck_warps in chart.stuck]
    if chart.stuck:
        lines.append(Text(""))
    if chart.cut:
        lines.append(Text(f"only the first {EVENTS:,} events were kept\n", "dim"))
    legend = "; ".join(f"{sign} {meaning}" for sign, meaning in chart.legend.items())
    return Group(*lines, Text(f"{legend}\n{UNIT}\n", "dim"), waits(chart))


def rows(chart: Chart) -> list[tuple[str, list[str]]]:
    """Return the table of waits: the role, and a text for each of HEADINGS."""
    return [
        (wait.role, [wait.awaited, str(wait.line or ""), f"{wait.times:.3g}", f"{wait.steps:,.0f}"])
        for wait in chart.waits
    ]


def waits(chart: Chart) -> RenderableType:
    """Return the table of waits for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if not chart.waits:
        return Text("no warp waits for anything")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("waits")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "for" else "right")
    for role, cells in rows(chart):
        table.add_row(role, *cells)
    return Group(table, Text(AVERAGE, "dim"))
