"""The host's side of a launch: start the scheduler, and handle what it leaves to the host."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from warpcheck.errors import FaultKind, TimedOut
from warpcheck.layout import LANES, SERVICES, Status
from warpcheck.runtime import schedule
from warpcheck.runtime.barrier_divergence import settle_barrier
from warpcheck.runtime.block_workers import Workers, longest_round
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.faults import Faults
from warpcheck.runtime.launch import NEVER, Grid

__all__ = ["RunGrid", "execute"]

HOST_TURN = 1 << 24  # lane-instructions after which control returns to the host: for the limit, and for Ctrl-C
SAMPLE_TURN = 1 << 16
# Consecutive turns in which blocks only poll, in total and for each block; after both, the launch is a deadlock.
MAX_IDLE_TURNS = 1 << 13
MAX_IDLE_TURNS_PER_BLOCK = 1 << 6
# Turns of a block that spins in a window, and consecutive windows in which all blocks spin; then it is a deadlock.
SPINNING_TURNS = 2
MAX_SPINNING_WINDOWS = 4
MAX_SAMPLE_BYTES = 128 << 20  # bytes of fresh memory that a sample may take, checks included: at worst half a second
RunGrid = Callable[[int, int], int]  # the compiled ``schedule.run_grid``, of addresses


def execute(
    grid: Grid,
    run_grid: RunGrid,
    limit: int,
    *,
    restarts: bool = False,
    find_workers: Callable[[], Workers | None] = lambda: None,
) -> bool:
    """Run every thread block, up to ``limit`` lane-instructions. Raises Fault and TimedOut.

    If ``restarts``, the limit counts from the last time that a block ended: it then finds loops that do not end, and a
    launch may have any number of blocks.

    ``find_workers`` returns threads that may run blocks, and is called if the launch runs for so long that it matters.

    Return whether the launch was cut: a sample of blocks ends at the limit, or when it has touched too much memory.
    """
    granted_instructions = 0
    sample = grid.blocks is not None
    idle_turns = 0
    spins = _Spins()
    blocks_done = 0
    resident_before = _resident() if sample else 0
    # How far the last turn before the limit may begin from it.
    last_turn = HOST_TURN + longest_round(grid)
    while granted_instructions < limit and (not sample or _resident() - resident_before < MAX_SAMPLE_BYTES):
        turn = min(SAMPLE_TURN if sample else HOST_TURN, limit - granted_instructions)
        grid.set(host_budget=turn, limits_slices=sample or limit - granted_instructions <= last_turn)
        granted_instructions += turn
        previously_done = blocks_done
        blocks_done = grid.get("block_next") - len(grid.residents.resident)
        # A block has ended, so the launch makes progress. Only blocks that never end should reach the limit.
        if restarts and blocks_done > previously_done:
            granted_instructions = turn
        while grid.get("host_budget") >= 0:
            cta = grid.residents.current
            # Every resident block has had a turn without any progress.
            all_stuck = idle_turns > len(grid.residents.resident)
            grid.set(timeouts_expire=all_stuck)
            stopped = run_grid(grid.address, cta.address)
            if stopped == schedule.YIELDS_IDLE:
                idle_turns += 1
            elif stopped not in (schedule.HOST, schedule.PAUSES):
                idle_turns = 0
            # Blocks that only poll or wait make no progress; idle_turns counts such turns over all resident blocks.
            match stopped:
                case schedule.DONE:
                    if not grid.residents.retire():
                        # The history of buffers outlives the launch. The next launch begins at a later time, so all of
                        # this one is before it.
                        grid.memory.time = grid.get("time") + 1
                        grid.memory.last_launch = grid
                        return False
                case schedule.YIELDS | schedule.YIELDS_IDLE | schedule.YIELDS_SPINNING:
                    has_stopped = idle_turns > max(
                        MAX_IDLE_TURNS, MAX_IDLE_TURNS_PER_BLOCK * len(grid.residents.resident)
                    )
                    if has_stopped or (stopped == schedule.YIELDS_SPINNING and spins.never_end(grid, cta)):
                        raise _deadlock(grid, cta)
                    grid.residents.give_way(all_stuck)
                case schedule.INTERLEAVES:
                    grid.residents.interleave()
                case schedule.PAUSES:
                    workers = find_workers()
                    if workers is None or not workers.may_run(grid):
                        grid.set(pause_clock=NEVER)
                        continue
                    # What is left without coming near the limit, at which one core may stop within a block. A limit for
                    # each block also counts the turn in which the block before has ended.
                    spent = granted_instructions - grid.get("host_budget")
                    left = NEVER if restarts else limit - 2 * last_turn - spent
                    block_limit = limit - 3 * last_turn if restarts else NEVER
                    if workers.are_worthwhile(grid, left):
                        grid.set(pause_clock=NEVER)
                        workers.run(grid, run_grid, left, block_limit)
                    else:
                        grid.set(pause_clock=workers.next_pause(grid))
                case schedule.HOST:
                    if grid.get("host_budget") >= 0:
                        settle_barrier(grid, cta, Faults(grid, cta))
                        if (poll_timeouts := cta.get("poll_timeouts")) >= schedule.IDLE_ROUNDS:
                            if cta.get("spin_timeouts") == poll_timeouts and spins.never_end(grid, cta):
                                raise _deadlock(grid, cta)
                            cta.set(poll_timeouts=0, spin_timeouts=0)
                            grid.residents.give_way(all_stuck)
                case _:
                    _handle_stop(grid, cta, stopped, Faults(grid, cta))
        # A turn ends between two rounds of a block, and so somewhat late.
        granted_instructions += max(0, -1 - grid.get("host_budget")) if not grid.get("limits_slices") else 0
    _raise_deferred_faults(grid)
    if not sample:
        raise Faults(grid, grid.residents.current).timed_out(limit)
    grid.memory.time = grid.get("time") + 1
    return True


class _Spins:
    """The blocks that wait in loops that poll, have a barrier, and end by the polled value alone.

    Such a block passes barriers, so its turns are not idle. But if all blocks are in such loops, and none signals
    anything, nobody ends them.
    """

    def __init__(self) -> None:
        self._turns: Counter[int] = Counter()
        self._progress = (-1, -1)
        self._windows = 0

    def never_end(self, grid: Grid, cta: Cta) -> bool:
        """Count a turn of a block that spins. Return whether all blocks have done nothing else for many turns."""
        self._turns[cta.address] += 1
        if self._turns[cta.address] == SPINNING_TURNS:
            progress = grid.get("signals"), grid.get("block_next")
            started = [block for block in grid.residents.resident if block.get("block_began")]
            are_all_spinning = all(block.address in self._turns for block in started)
            self._windows = self._windows + 1 if are_all_spinning and progress == self._progress else 0
            self._progress = progress
            self._turns.clear()
        return self._windows == MAX_SPINNING_WINDOWS


def _deadlock(grid: Grid, cta: Cta) -> TimedOut:
    """Return the Deadlock of a launch. Raises the Fault of a block that has deferred one."""
    _raise_deferred_faults(grid)
    return Faults(grid, cta).deadlock()


def _raise_deferred_faults(grid: Grid) -> None:
    for cta in grid.residents.resident:
        Faults(grid, cta).raise_deferred()


def _resident() -> int:
    """Return the bytes of memory that this process has touched and not given back."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def _handle_stop(grid: Grid, cta: Cta, warp: int, faults: Faults) -> None:
    """Handle what a warp has stopped for."""
    match Status(int(cta.warps[warp]["status"])):
        case Status.FAULT:
            raise faults.recorded_fault()
        case Status.STUCK:
            raise faults.stuck_warp(warp)
        case Status.HOST:
            _run_service(grid, cta, warp, faults)
        case Status.MISCOUNTED:
            raise faults.miscounted_barrier(warp)
    cta.warps["status"][warp] = Status.READY


def _run_service(grid: Grid, cta: Cta, warp: int, faults: Faults) -> None:
    """Run printf, assert, malloc or free for each lane that calls it."""
    record = cta.warps[warp]
    service = SERVICES[int(record["barrier"])]
    mask = int(record["mask"])
    rows = np.ascontiguousarray(record["operands"][:8]).view(np.uint32).reshape(4, 2 * LANES).view(np.uint64)
    for lane in (lane for lane in range(LANES) if mask >> lane & 1):
        first, second, third = (int(rows[row, lane]) for row in range(3))
        if service == "vprintf":
            grid.printed.append(format_printf(first, second))
            continue
        if service == "free":
            grid.free(first)
            continue
        if service == "malloc":
            rows[0, lane] = grid.allocate(first)
            record["operands"][:2] = rows[0].view(np.uint32).reshape(2, LANES)
            continue
        # A deferred fault came first, and may be the reason why the assertion fails.
        faults.raise_deferred()
        text = f"fails the assertion {c_string(first)!r} of {c_string(second)}, line {third & 0xFFFFFFFF}"
        raise faults.fault_at_block(FaultKind.ASSERTION, text, int(record["barrier_block"]), warp, lane)


_SPECIFIER = re.compile(r"%(?:%|([-+ #0]*\d*(?:\.\d+)?)(hh|h|ll|l|z|t|j)?([diouxXcspeEfFgGaA]))")


def c_string(address: int) -> str:
    """Return the zero-terminated text at an address."""
    return ctypes.string_at(address).decode(errors="replace")


def format_printf(text: int, arguments: int) -> str:
    """Return the output of ``vprintf(text, arguments)`` (CUDA programming guide, 10.35).

    The arguments are packed at their natural alignment.
    """
    position = arguments

    def read_argument(kind: type[ctypes._SimpleCData[int]] | type[ctypes.c_double]) -> int | float:
        nonlocal position
        # Arguments are packed like the members of a struct.
        size = ctypes.sizeof(kind)
        position = -(-position // size) * size
        value: int | float = kind.from_address(position).value
        position += size
        return value

    def format_specifier(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        flags = match[1]
        length = match[2] or ""
        code = match[3]
        if code in "eEfFgGaA":
            value = float(read_argument(ctypes.c_double))
            return _hexadecimal(value, match[0]) if code in "aA" else f"%{flags}{code}" % value
        if code == "s":
            return f"%{flags}s" % c_string(int(read_argument(ctypes.c_uint64)))
        is_64_bit = code == "p" or length in ("l", "ll", "z", "t", "j")
        if code in "di":
            return f"%{flags}d" % read_argument(ctypes.c_int64 if is_64_bit else ctypes.c_int32)
        value = int(read_argument(ctypes.c_uint64 if is_64_bit else ctypes.c_uint32))
        if code == "c":
            return f"%{flags}c" % chr(value & 0xFF)
        return f"0x{value:x}" if code == "p" else f"%{flags}{'d' if code == 'u' else code}" % value

    return _SPECIFIER.sub(format_specifier, c_string(text))


def _hexadecimal(value: float, specifier: str) -> str:
    """Format ``%a`` by the C library, which formats for a GPU as well."""
    text = ctypes.create_string_buffer(1100)
    ctypes.CDLL(None).snprintf(text, len(text), specifier.encode(), ctypes.c_double(value))
    return text.value.decode()
