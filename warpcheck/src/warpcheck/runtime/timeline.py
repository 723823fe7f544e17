"""The events that a launch has recorded, with their lines and the names of their barriers."""

from __future__ import annotations

from warpcheck.events import EVENTS, Event, EventKind
from warpcheck.layout import ASIDE
from warpcheck.runtime import complaints
from warpcheck.runtime.history import SITE
from warpcheck.runtime.launch import Grid
from warpcheck.runtime.meeting import BARRIERS
from warpcheck.runtime.recorder import NO_SITE, at_block

__all__ = ["barrier_lines", "events_of"]


def events_of(grid: Grid) -> list[Event]:
    """The events of the first block or cluster, in their order; none where none were asked for."""
    if "events" not in grid.arrays:
        return []
    rows = grid.arrays["events"][: min(grid.get("event_count"), EVENTS)]
    numbers = {offset: number for number, offset in enumerate(sorted(_initialized(grid)))}
    return [_event(grid, numbers, *(int(value) for value in row)) for row in rows.tolist()]


def barrier_lines(grid: Grid) -> dict[str, int]:
    """The line that initializes each mbarrier that lies in no variable with a name, in the order of their addresses."""
    if "events" not in grid.arrays:
        return {}
    lines = sorted(_initialized(grid).items())
    variables = grid.lowered.shared
    return {
        _unnamed(number): line
        for number, (offset, line) in enumerate(lines)
        if not complaints.mbarrier_name(offset, variables)
    }


def _initialized(grid: Grid) -> dict[int, int]:
    """The line that initializes the mbarrier at an offset in shared memory, which is the same in every block."""
    lines: dict[int, int] = {}
    for cta in grid.residents.all:
        for record in cta.arrays.get("mbarriers", ()):
            if address := int(record["place"]):
                site = (int(record["trace"]) >> SITE) - 1
                lines[address - cta.get("shared")] = grid.lowered.sites[site].line
    return lines


def _unnamed(number: int) -> str:
    return f"mbarrier {number}"


def _event(
    grid: Grid,
    numbers: dict[int, int],
    kind: int,
    clock: int,
    block: int,
    warp: int,
    site: int,
    barrier: int,
    phase: int,
    nbytes: int,
) -> Event:
    line, instruction = _instruction(grid, site)
    name = _barrier(grid, numbers, barrier, block) if barrier >= 0 else ""
    return Event(EventKind(kind), clock // 32, block, warp, line, instruction, name, phase, nbytes)


def _instruction(grid: Grid, site: int) -> tuple[int, str]:
    """Line and name of an instruction that touches memory, or of the one that begins a basic block."""
    if site >= 0:
        return grid.lowered.sites[site].line, grid.lowered.sites[site].text
    at = (site - at_block(0)) % ASIDE
    known = site != NO_SITE and at < len(grid.lowered.blocks)
    return grid.lowered.blocks[at][0] if known else (0, "")


def _barrier(grid: Grid, numbers: dict[int, int], barrier: int, block: int) -> str:
    """The name of a barrier for a warp of the block of that rank."""
    if barrier < BARRIERS:
        return f"barrier {barrier}"
    before = (cta for cta in grid.residents.all if cta.get("shared") <= barrier)
    owner = max(before, key=lambda cta: cta.get("shared"))
    offset = barrier - owner.get("shared")
    unnamed = _unnamed(numbers[offset]) if offset in numbers else f"byte {offset}"
    name = complaints.mbarrier_name(offset, grid.lowered.shared) or unnamed
    return name if owner.rank == block else f"{name} of block {owner.rank}"
