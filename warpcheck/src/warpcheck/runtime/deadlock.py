"""What each warp of a launch waits for that cannot go on, and how far every barrier in memory is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from warpcheck.layout import LANES, WAITING, Status
from warpcheck.runtime import complaints
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.history import SITE
from warpcheck.runtime.launch import Grid
from warpcheck.runtime.mbarriers import COUNT, EXPECTED
from warpcheck.runtime.pending import BYTES, TRANSACTIONS

__all__ = ["place_of", "waits"]

BLOCKS = 4
"""Of blocks that wait as many are told of."""


class State(NamedTuple):
    """How far a barrier in shared memory is. left: bytes that its phase still expects, negative where more landed.

    promised: what its phase was told to expect, last in ``line``.
    """

    phase: int
    pending: int
    expected: int
    left: int
    promised: int
    line: int

    @property
    def untouched(self) -> bool:
        return self.phase == self.left == self.promised == 0 and self.pending == self.expected

    def __str__(self) -> str:
        text = (
            f"in phase {self.phase} (pending arrivals: {self.pending} of {self.expected}, pending bytes: {self.left:,}"
        )
        if self.left < 0:
            text += ", more have landed than were promised"
        return f"{text})"


def waits(grid: Grid) -> tuple[str, int]:
    """What is wrong, if that can be told, then who waits where for what; the line that is to blame, or 0.

    Blocks that wait as another one does are counted. Barriers that nobody has used, nobody waits for.
    """
    busy = [cta for cta in grid.residents.busy if cta.get("block_began")]
    advice, line = next(filter(any, (_advice(grid, cta) for cta in busy)), ("", 0))
    block = "program" if grid.module.of_triton else "block"
    alike: dict[tuple[str, ...], str] = {}
    for cta in busy:
        alike.setdefault(tuple(_of_block(grid, cta)), f"{block} {grid.named(cta.place())}")
    told = [text.format(block=place) for texts, place in list(alike.items())[:BLOCKS] for text in texts]
    if more := len(busy) - min(len(alike), BLOCKS):
        told.append(f"{more} more {block}{'s wait' if more > 1 else ' waits'}")
    return "; ".join([advice] * bool(advice) + told), line


def _of_block(grid: Grid, cta: Cta) -> Iterator[str]:
    """Who waits in a block, and how far its other barriers are: with {block} for its name."""
    found: dict[tuple[int, str], list[int]] = {}
    for warp, record in enumerate(cta.warps):
        if record["live"]:
            at = int(record["pcs"].min()) % WAITING
            blocks = grid.lowered.blocks
            if record["status"] == Status.BARRIER:  # it goes on behind the barrier, which ends a block
                line = blocks[at - 1][-1][0]
            else:
                line = blocks[at][0][0] if at < len(blocks) else 0
            found.setdefault((line, _reason(grid, cta, warp, at)), []).append(warp)
    for (line, reason), warps in found.items():
        yield f"{_names(warps)} of {{block}} {'waits' if len(warps) == 1 else 'wait'} in line {line}{reason}"
    states = _states(grid, cta)
    alike: dict[str, list[int]] = {}
    for address in sorted(states.keys() - _awaited(cta)):
        if not states[address].untouched:
            alike.setdefault(str(states[address]), []).append(address)
    for state, addresses in alike.items():
        yield f"{place_of(grid, cta, *addresses)} of {{block}} {'is' if len(addresses) == 1 else 'are'} {state}"


def _awaited(cta: Cta) -> set[int]:
    """The addresses of the barriers in memory that warps wait for; 0 among them where one waits for something else."""
    return {int(record["waits_at"]) for record in cta.warps if record["status"] == Status.SUSPENDED}


def _advice(grid: Grid, cta: Cta) -> tuple[str, int]:
    """What may be wrong with a block's barriers, and in which line."""
    states = _states(grid, cta)
    if short := next((one for one in states.values() if one.left > 0 and not one.pending), None):
        if any(one.left < 0 for one in states.values()):
            return (
                "bytes promised at one mbarrier have landed at another: a copy has to name the one that expects them",
                0,
            )
        return _promise(short), short.line
    if over := next((one for one in states.values() if one.left < 0), None):
        return _promise(over), over.line if over.promised else 0
    awaited = _awaited(cta)
    if len(awaited) > 1 and all(address in states and states[address].untouched for address in awaited):
        return (
            "nobody has arrived at any of these: whoever goes first waits for parity 1, which a new mbarrier lets pass",
            0,
        )
    return _wrong_number_of_arrivals(grid, cta, states, awaited)


def _wrong_number_of_arrivals(
    grid: Grid, cta: Cta, states: Mapping[int, State], awaited: Collection[int]
) -> tuple[str, int]:
    """Return what is said of an mbarrier at which another number of threads arrives, and where it was initialized.

    A whole warp that arrives in place of one thread ends 32 phases for each of its peers'.
    """
    for address, state in states.items():
        slower = [other.phase for place, other in states.items() if place != address and not other.untouched]
        if state.phase >= LANES and not state.phase % LANES and max(slower, default=0) <= state.phase // LANES + 1:
            text = (
                f"{place_of(grid, cta, address)} is in phase {state.phase}, far ahead of the others: it was "
                f"initialized with {_arrivals(state.expected)} a phase, and more threads arrive (all lanes of a warp, "
                "not one?)"
            )
            return text, _initialized(grid, cta, address)
    lacking = [
        address for address in awaited if address in states and 0 < states[address].pending < states[address].expected
    ]
    # a warp that waits for something else, registers say, may be one that was to arrive
    if not lacking or any(record["live"] and int(record["waits_at"]) not in states for record in cta.warps):
        return "", 0
    address = min(lacking, key=lambda address: states[address].pending)
    state = states[address]
    came = state.expected - state.pending
    text = f"{place_of(grid, cta, address)} has {came} of the {_arrivals(state.expected)} that it was initialized with"
    return text, _initialized(grid, cta, address)


def _arrivals(count: int) -> str:
    return f"{count} arrival{'s' * (count > 1)}"


def _initialized(grid: Grid, cta: Cta, address: int) -> int:
    """Return the line that initialized the mbarrier at an address."""
    traces = {int(record["place"]): int(record["trace"]) for record in cta.arrays["mbarriers"]}
    return grid.lowered.sites[(traces[address] >> SITE) - 1].line


def _promise(state: State) -> str:
    if not state.promised:
        return f"{-state.left:,} bytes have landed that were not promised: promise those of all copies, of whole boxes"
    landed = f"{state.promised - state.left:,} have landed: promise those of all copies, of whole boxes"
    return f"line {state.line} promises {state.promised:,} bytes, and {landed}"


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
    return (
        f" for {place_of(grid, cta, address)}, which is {_states(grid, cta)[address]}" if address else " for its copies"
    )


def place_of(grid: Grid, cta: Cta, *addresses: int) -> str:
    """Name barriers in shared memory, "mbarrier full[1]", or say where they are and were initialized.

    Empty where no mbarrier of the block is at one of the addresses.
    """
    if not {*addresses} <= {int(record["place"]) for record in cta.arrays.get("mbarriers", ())}:
        return ""
    offsets = [address - cta.get("shared") for address in addresses]
    names, many = (
        [complaints.mbarrier_name(offset, grid.lowered.shared) for offset in offsets],
        "s" * (len(offsets) > 1),
    )
    if all(names):
        return f"mbarrier{many} {_listed(names)}"
    lines = sorted({_initialized(grid, cta, address) for address in addresses})
    of_lines = f"initialized in line{'s' * (len(lines) > 1)} {_listed(lines)}"
    return f"the mbarrier{many} at byte{many} {_listed(offsets)} ({of_lines})"


def _listed(things: Sequence[object]) -> str:
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last


def _states(grid: Grid, cta: Cta) -> dict[int, State]:
    """How far each barrier in a block's shared memory is, by its address."""
    found = {}
    for record in cta.arrays.get("mbarriers", ()):
        if address := int(record["place"]):
            offset = address - cta.get("shared")
            word = int.from_bytes(cta.arrays["shared"][offset : offset + 8].tobytes(), "little")
            left = word >> TRANSACTIONS & BYTES
            left -= (left >> 20) << 21
            line = grid.lowered.sites[record["promise"] - 1].line if record["promise"] else 0
            counts = word & COUNT, word >> EXPECTED & COUNT
            found[address] = State(int(record["phases"]), *counts, left, int(record["promised"]), line)
    return found


def _names(warps: list[int]) -> str:
    """Warps by their numbers: "warp 3", "warps 0 to 3, 5"."""
    starts = [warp for warp in warps if warp - 1 not in warps]
    ends = [warp for warp in warps if warp + 1 not in warps]
    runs = [str(start) if start == end else f"{start} to {end}" for start, end in zip(starts, ends, strict=True)]
    return f"warp{'s' * (len(warps) != 1)} {', '.join(runs)}"
