"""Describe what each warp of a launch that cannot go on waits for, and the state of each mbarrier."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from warpcheck.layout import LANES, WAITING, Status
from warpcheck.runtime import fault_messages
from warpcheck.runtime.access_history import site_of
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.launch import Grid
from warpcheck.runtime.mbarriers import ARRIVALS_MASK, EXPECTED_SHIFT
from warpcheck.runtime.tx_count import PENDING_MASK, PENDING_SHIFT

__all__ = ["describe_mbarriers", "describe_waits"]

# The most blocks that are described.
MAX_BLOCKS = 4


class MbarrierState(NamedTuple):
    """The state of an mbarrier.

    ``pending_bytes`` are those that its phase still expects, negative if more have landed. ``expected_bytes`` are all
    that its phase was told to expect, the last of them in ``line``.
    """

    phase: int
    pending: int
    expected: int
    pending_bytes: int
    expected_bytes: int
    line: int

    @property
    def untouched(self) -> bool:
        return self.phase == self.pending_bytes == self.expected_bytes == 0 and self.pending == self.expected

    def __str__(self) -> str:
        text = f"in phase {self.phase} (pending arrivals: {self.pending} of {self.expected}"
        text += f", pending bytes: {self.pending_bytes:,}"
        if self.pending_bytes < 0:
            text += ", more have landed than were promised"
        return f"{text})"


def describe_waits(grid: Grid) -> tuple[str, int]:
    """Return the probable cause, if it can be told, and which warps wait where for what; and the line of the cause,
    or 0.

    Blocks that wait in the same way are counted. mbarriers that were never used are left out.
    """
    # A record may be free, waiting for the next block.
    started = [cta for cta in grid.residents.resident if cta.get("block_began")]
    causes = (_find_cause(grid, cta) for cta in started)
    advice, line = next(filter(any, causes), (_describe_blocks_to_come(grid, started), 0))
    block = "program" if grid.module.of_triton else "block"
    block_names: dict[tuple[str, ...], str] = {}
    for cta in started:
        block_names.setdefault(tuple(_describe_block(grid, cta)), f"{block} {grid.format_block(cta.coordinates())}")
    sentences = [text.format(block=place) for texts, place in list(block_names.items())[:MAX_BLOCKS] for text in texts]
    if omitted := len(started) - min(len(block_names), MAX_BLOCKS):
        sentences.append(f"{omitted} more {block}{'s wait' if omitted > 1 else ' waits'}")
    return "; ".join([advice] * bool(advice) + sentences), line


def _describe_blocks_to_come(grid: Grid, started: Collection[Cta]) -> str:
    """Say that blocks have yet to start, for which a block that polls may be waiting."""
    are_polling = any(
        record["live"] and record["status"] not in (Status.SUSPENDED, Status.BARRIER)
        for cta in started
        for record in cta.warps
    )
    block_count = grid.get("block_count")
    if not are_polling or (remaining := block_count - grid.get("block_next")) <= 0:
        return ""
    block, counter, index = (
        ("program", "tl.atomic_add", "tl.program_id") if grid.module.of_triton else ("block", "atomicAdd", "blockIdx")
    )
    verb = "has" if remaining == 1 else "have"
    return (
        f"{remaining:,} of {block_count:,} {block}s {verb} not started, and none will before another one ends: "
        f"if a {block} waits for one of them, let {block}s take their numbers from a counter "
        f"({counter}), and not from {index}"
    )


def _describe_block(grid: Grid, cta: Cta) -> Iterator[str]:
    """Yield who waits in a block, and the state of its other mbarriers, with {block} for its name."""
    warps_by_reason: dict[tuple[int, str], list[int]] = {}
    for warp, record in enumerate(cta.warps):
        if record["live"]:
            block_number = int(record["pcs"].min()) % WAITING
            basic_blocks = grid.lowered.blocks
            # The program counter of a warp at a barrier is the block after it; the barrier ended the block before.
            if record["status"] == Status.BARRIER:
                line = basic_blocks[block_number - 1][-1][0]
            else:
                line = basic_blocks[block_number][0][0] if block_number < len(basic_blocks) else 0
            warps_by_reason.setdefault((line, _describe_wait(grid, cta, warp, block_number)), []).append(warp)
    for (line, reason), warps in warps_by_reason.items():
        yield f"{_warp_names(warps)} of {{block}} {'waits' if len(warps) == 1 else 'wait'} in line {line}{reason}"
    states = _mbarrier_states(grid, cta)
    addresses_by_state: dict[str, list[int]] = {}
    for address in sorted(states.keys() - _awaited_addresses(cta)):
        if not states[address].untouched:
            addresses_by_state.setdefault(str(states[address]), []).append(address)
    for state, addresses in addresses_by_state.items():
        verb = "is" if len(addresses) == 1 else "are"
        yield f"{describe_mbarriers(grid, cta, *addresses)} of {{block}} {verb} {state}"


def _awaited_addresses(cta: Cta) -> set[int]:
    """Return the addresses of the mbarriers that warps wait for, and 0 if a warp waits for something else."""
    return {int(record["awaited_mbarrier"]) for record in cta.warps if record["status"] == Status.SUSPENDED}


def _find_cause(grid: Grid, cta: Cta) -> tuple[str, int]:
    """Return what is probably wrong with a block's mbarriers, and in which line."""
    states = _mbarrier_states(grid, cta)
    # Bytes first: a phase that has all its arrivals waits only for its copies, so the mistake is in their sizes.
    if incomplete := next((state for state in states.values() if state.pending_bytes > 0 and not state.pending), None):
        if any(state.pending_bytes < 0 for state in states.values()):
            return (
                "bytes promised at one mbarrier have landed at another: a copy has to name the one that expects them",
                0,
            )
        return _describe_expected_bytes(incomplete), incomplete.line
    if overrun := next((state for state in states.values() if state.pending_bytes < 0), None):
        return _describe_expected_bytes(overrun), overrun.line if overrun.expected_bytes else 0
    awaited = _awaited_addresses(cta)
    if len(awaited) > 1 and all(address in states and states[address].untouched for address in awaited):
        return (
            "nobody has arrived at any of these: whoever goes first waits for parity 1, which a new mbarrier lets pass",
            0,
        )
    return _find_wrong_arrival_count(grid, cta, states, awaited)


def _find_wrong_arrival_count(
    grid: Grid, cta: Cta, states: Mapping[int, MbarrierState], awaited: Collection[int]
) -> tuple[str, int]:
    """Return what is wrong with the arrival count of an mbarrier, and the line that initialized it.

    A whole warp that arrives in place of one thread completes 32 phases for each phase of its peers.
    """
    for address, state in states.items():
        other_phases = [
            state_elsewhere.phase
            for address_elsewhere, state_elsewhere in states.items()
            if address_elsewhere != address and not state_elsewhere.untouched
        ]
        if (
            state.phase >= LANES
            and not state.phase % LANES
            and max(other_phases, default=0) <= state.phase // LANES + 1
        ):
            text = (
                f"{describe_mbarriers(grid, cta, address)} is in phase {state.phase}, far ahead of the others: it was "
                f"initialized with {_count_arrivals(state.expected)} a phase, and more threads arrive (all lanes of a "
                "warp, not one?)"
            )
            return text, _init_line(grid, cta, address)
    lacking = [
        address for address in awaited if address in states and 0 < states[address].pending < states[address].expected
    ]
    # A warp that waits for something else, for registers perhaps, may be one that has yet to arrive.
    if not lacking or any(record["live"] and int(record["awaited_mbarrier"]) not in states for record in cta.warps):
        return "", 0
    address = min(lacking, key=lambda address: states[address].pending)
    state = states[address]
    arrived = state.expected - state.pending
    arrivals = f"{arrived} of the {_count_arrivals(state.expected)}"
    text = f"{describe_mbarriers(grid, cta, address)} has {arrivals} that it was initialized with"
    return text, _init_line(grid, cta, address)


def _count_arrivals(count: int) -> str:
    return f"{count} arrival{'s' * (count > 1)}"


def _init_line(grid: Grid, cta: Cta, address: int) -> int:
    """Return the line that initialized the mbarrier at an address."""
    init_ids = {int(record["object_address"]): int(record["init_id"]) for record in cta.mbarriers}
    return grid.lowered.sites[site_of(init_ids[address])].line


def _describe_expected_bytes(state: MbarrierState) -> str:
    if not state.expected_bytes:
        excess = f"{-state.pending_bytes:,} bytes have landed that were not promised"
        return f"{excess}: promise those of all copies, of whole boxes"
    landed = f"{state.expected_bytes - state.pending_bytes:,} have landed: promise those of all copies, of whole boxes"
    return f"line {state.line} promises {state.expected_bytes:,} bytes, and {landed}"


def _describe_wait(grid: Grid, cta: Cta, warp: int, block_number: int) -> str:
    record = cta.warps[warp]
    status = record["status"]
    name = grid.lowered.blocks[block_number][0][1] if block_number < len(grid.lowered.blocks) else ""
    if status == Status.BARRIER:
        threads = int(record["barrier_threads"])
        return f" at barrier {record['barrier']}" + f" of {threads} threads" * (threads > 0)
    if status != Status.SUSPENDED:
        return ", in a loop that polls"
    if "setmaxnreg" in name:
        available = cta.get("registers_left")
        return (
            f" for registers: its threads have {record['registers']}, and the block has {available} left for a warp's"
        )
    if "wgmma" in name:
        return " for the other warps of its warpgroup"
    if "cluster" in name:
        return " at the barrier of its cluster"
    address = int(record["awaited_mbarrier"])
    return (
        f" for {describe_mbarriers(grid, cta, address)}, which is {_mbarrier_states(grid, cta)[address]}"
        if address
        else " for its copies"
    )


def describe_mbarriers(grid: Grid, cta: Cta, *addresses: int) -> str:
    """Name mbarriers, "mbarrier full[1]", or say where they are and were initialized.

    Return an empty text if one of the addresses holds no mbarrier of the block.
    """
    if not {*addresses} <= {int(record["object_address"]) for record in cta.mbarriers}:
        return ""
    offsets = [address - cta.get("shared") for address in addresses]
    names = [fault_messages.mbarrier_name(offset, grid.lowered.shared) for offset in offsets]
    plural = "s" * (len(offsets) > 1)
    if all(names):
        return f"mbarrier{plural} {_enumerate(names)}"
    lines = sorted({_init_line(grid, cta, address) for address in addresses})
    of_lines = f"initialized in line{'s' * (len(lines) > 1)} {_enumerate(lines)}"
    return f"the mbarrier{plural} at byte{plural} {_enumerate(offsets)} ({of_lines})"


def _enumerate(items: Sequence[object]) -> str:
    *leading, final = map(str, items)
    return f"{', '.join(leading)} and {final}" if leading else final


def _mbarrier_states(grid: Grid, cta: Cta) -> dict[int, MbarrierState]:
    """Return the state of each mbarrier in a block's shared memory, by its address."""
    states = {}
    for record in cta.mbarriers:
        if address := int(record["object_address"]):
            offset = address - cta.get("shared")
            word = int.from_bytes(cta.array("shared")[offset : offset + 8].tobytes(), "little")
            pending_bytes = word >> PENDING_SHIFT & PENDING_MASK
            pending_bytes -= (pending_bytes >> 20) << 21  # sign-extend 21 bits
            line = grid.lowered.sites[record["expect_site"] - 1].line if record["expect_site"] else 0
            counts = word & ARRIVALS_MASK, word >> EXPECTED_SHIFT & ARRIVALS_MASK
            states[address] = MbarrierState(
                int(record["completed_phases"]), *counts, pending_bytes, int(record["expected_bytes"]), line
            )
    return states


def _warp_names(warps: list[int]) -> str:
    """List warps by their numbers: "warp 3", "warps 0 to 3, 5"."""
    starts = [warp for warp in warps if warp - 1 not in warps]
    ends = [warp for warp in warps if warp + 1 not in warps]
    runs = [str(start) if start == end else f"{start} to {end}" for start, end in zip(starts, ends, strict=True)]
    return f"warp{'s' * (len(warps) != 1)} {', '.join(runs)}"
