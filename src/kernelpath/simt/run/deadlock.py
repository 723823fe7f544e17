"""What each warp of a launch waits for that cannot go on, and how far every barrier in memory is."""

from __future__ import annotations

from collections.abc import Iterator

from kernelpath.simt.layout import WAITING, Status
from kernelpath.simt.run import complaints
from kernelpath.simt.run.cta import Cta
from kernelpath.simt.run.launch import Grid
from kernelpath.simt.run.mbarriers import BYTES, COUNT, EXPECTED, TRANSACTIONS

__all__ = ["waits"]

BLOCKS = 4
"""Of blocks that wait as many are told of."""


def waits(grid: Grid) -> str:
    """Who waits where for what, block by block; then the barriers that nobody waits for."""
    busy = [cta for cta in grid.residents.busy if cta.get("block_began")]
    told = [text for cta in busy[:BLOCKS] for text in _of_block(grid, cta)]
    if len(busy) > BLOCKS:
        told.append(f"{len(busy) - BLOCKS} more blocks wait")
    return "; ".join(told)


def _of_block(grid: Grid, cta: Cta) -> Iterator[str]:
    block = f" of {'program' if grid.module.of_triton else 'block'} {grid.named(cta.place())}"
    found: dict[tuple[int, str], list[int]] = {}
    for warp, record in enumerate(cta.warps):
        if record["live"]:
            at = int(record["pcs"].min()) % WAITING
            line = grid.lowered.blocks[at][0][0] if at < len(grid.lowered.blocks) else 0
            found.setdefault((line, _reason(grid, cta, warp, at)), []).append(warp)
    for (line, reason), warps in found.items():
        yield f"{_names(warps)}{block} {'waits' if len(warps) == 1 else 'wait'} in line {line}{reason}"
    awaited = {int(record["waits_at"]) for record in cta.warps if record["status"] == Status.SUSPENDED}
    for address in cta.arrays["mbarriers"]["place"] if "mbarriers" in cta.arrays else ():
        if address and int(address) not in awaited:
            yield f"{_place(grid, cta, int(address))}{block} {_state(cta, int(address))}"


def _reason(grid: Grid, cta: Cta, warp: int, at: int) -> str:
    record = cta.warps[warp]
    status, name = record["status"], grid.lowered.blocks[at][0][1] if at < len(grid.lowered.blocks) else ""
    if status == Status.BARRIER:
        threads = int(record["barrier_threads"])
        return f" at barrier {record['barrier']}" + f" of {threads} threads" * (threads > 0)
    if status != Status.SUSPENDED:
        return " and asks again and again"
    if "setmaxnreg" in name:
        left = cta.get("registers_left")
        return f" for registers: its threads have {record['registers']}, and the block has {left} left for a warp's"
    if "wgmma" in name:
        return " for the other warps of its warpgroup"
    if "cluster" in name:
        return " at the barrier of its cluster"
    address = int(record["waits_at"])
    return f" for {_place(grid, cta, address)}, which {_state(cta, address)}" if address else " for its copies"


def _place(grid: Grid, cta: Cta, address: int) -> str:
    """The name of a barrier in shared memory: "full[1]"."""
    offset = address - cta.get("shared")
    name = complaints.mbarrier_name(offset, grid.lowered.shared)
    return f"mbarrier {name}" if name else f"the mbarrier at byte {offset} of shared memory"


def _state(cta: Cta, address: int) -> str:
    """How far a barrier is: "has had 2 phases and needs 1 of 4 arrivals and 1,024 bytes"."""
    offset = address - cta.get("shared")
    state = int.from_bytes(cta.arrays["shared"][offset : offset + 8].tobytes(), "little")
    records = cta.arrays["mbarriers"]
    phases = int(records["phases"][records["place"] == address][0])
    pending, expected, left = state & COUNT, state >> EXPECTED & COUNT, state >> TRANSACTIONS & BYTES
    left -= (left >> 20) << 21
    needs = f"pending arrivals: {pending} of {expected}, pending bytes: {left:,}"
    needs += ", more have landed than were expected" * (left < 0)
    return f"is in phase {phases} ({needs})"


def _names(warps: list[int]) -> str:
    """Warps by their numbers: "warp 3", "warps 0 to 3, 5"."""
    starts = [warp for warp in warps if warp - 1 not in warps]
    ends = [warp for warp in warps if warp + 1 not in warps]
    runs = [str(start) if start == end else f"{start} to {end}" for start, end in zip(starts, ends, strict=True)]
    return f"warp{'s' * (len(warps) != 1)} {', '.join(runs)}"
