"""Turn the events that a launch has recorded into Events, with their lines and the names of their barriers."""

from __future__ import annotations

from warpcheck.events import EVENTS, Event, EventKind
from warpcheck.layout import ASIDE
from warpcheck.runtime import fault_messages
from warpcheck.runtime.access_history import site_of
from warpcheck.runtime.cta_barrier import BARRIERS
from warpcheck.runtime.event_recorder import NO_SITE, block_site
from warpcheck.runtime.launch import Grid

__all__ = ["barrier_lines", "collect_events"]


def collect_events(grid: Grid) -> list[Event]:
    """Return the events of the first block or cluster, in order; an empty list if none were recorded."""
    if not grid.has_array("events"):
        return []
    rows = grid.array("events")[: min(grid.get("event_count"), EVENTS)]
    numbers = {offset: number for number, offset in enumerate(sorted(_init_lines(grid)))}
    return [_event(grid, numbers, *(int(value) for value in row)) for row in rows.tolist()]


def barrier_lines(grid: Grid) -> dict[str, int]:
    """Return the line that initializes each mbarrier that is in no named variable, ordered by address."""
    if not grid.has_array("events"):
        return {}
    lines = sorted(_init_lines(grid).items())
    variables = grid.lowered.shared
    return {
        _numbered_name(number): line
        for number, (offset, line) in enumerate(lines)
        if not fault_messages.mbarrier_name(offset, variables)
    }


def _init_lines(grid: Grid) -> dict[int, int]:
    """Return the line that initializes the mbarrier at each offset in shared memory; it is the same in every block."""
    lines: dict[int, int] = {}
    for cta in grid.residents.all_ctas:
        for record in cta.mbarriers:
            if address := int(record["object_address"]):
                site = site_of(int(record["init_id"]))
                lines[address - cta.get("shared")] = grid.lowered.sites[site].line
    return lines


def _numbered_name(number: int) -> str:
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
    name = _barrier_name(grid, numbers, barrier, block) if barrier >= 0 else ""
    return Event(EventKind(kind), clock // 32, block, warp, line, instruction, name, phase, nbytes)


def _instruction(grid: Grid, site: int) -> tuple[int, str]:
    """Return line and name of an instruction that touches memory, or of the first one of a basic block."""
    if site >= 0:
        return grid.lowered.sites[site].line, grid.lowered.sites[site].text
    block_number = (site - block_site(0)) % ASIDE
    is_block = site != NO_SITE and block_number < len(grid.lowered.blocks)
    return grid.lowered.blocks[block_number][0] if is_block else (0, "")


def _barrier_name(grid: Grid, numbers: dict[int, int], barrier: int, block: int) -> str:
    """Return the name of a barrier, as seen by a warp of the block of that rank."""
    if barrier < BARRIERS:
        return f"barrier {barrier}"
    candidates = (cta for cta in grid.residents.all_ctas if cta.get("shared") <= barrier)
    owner = max(candidates, key=lambda cta: cta.get("shared"))
    offset = barrier - owner.get("shared")
    numbered = _numbered_name(numbers[offset]) if offset in numbers else f"byte {offset}"
    name = fault_messages.mbarrier_name(offset, grid.lowered.shared) or numbered
    return name if owner.rank == block else f"{name} of block {owner.rank}"
