"""From what a launch's records say to the Fault that ends it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warpcheck.errors import FAULT_KINDS, Deadlock, Fault, FaultKind, TimedOut
from warpcheck.layout import LANES, NOWHERE, POSITION, UNFENCED, WAITING, Space, Status
from warpcheck.lowered import Site
from warpcheck.ptx import Register
from warpcheck.runtime import complaints
from warpcheck.runtime.arrays import Dim
from warpcheck.runtime.copy_rules import RULES, CopyRule
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.deadlock import place_of, waits
from warpcheck.runtime.history import ASYNCHRONOUS, EXITED, SITE, THREAD, WAS_ATOMIC
from warpcheck.runtime.launch import Author, Grid
from warpcheck.runtime.spaces import RANK
from warpcheck.runtime.symbols import source_name

__all__ = ["Faults"]

_SKIPPED = "skipped this barrier: it returned early, or the barrier is inside an if or a loop that it did not run"
_CERTAIN = (FaultKind.OUT_OF_BOUNDS, FaultKind.MISALIGNED)
"""Faults that stand whatever other threads do: a suspicion of unwritten memory comes second."""
_UNCOMMITTED = "; no copy of this kernel is in a group: commit it (commit_group) in front of the wait"
_NO_MBARRIER = "; nothing has initialized an mbarrier there: one thread has to (mbarrier_init), then a barrier"
_ELECTS = "; elect.sync takes the whole warp: cute.copy of TMA elects its own thread, so call it outside of elect_one()"
_ALL_MUST_MEET = "all threads of a block must reach the same barrier"


class Faults:
    """Makes the faults of a launch and of its resident block. A thread is the number of its warp, and its lane."""

    def __init__(self, grid: Grid, cta: Cta) -> None:
        self.grid, self.cta, self.lowered = grid, cta, grid.lowered
        self._programs = grid.module.of_triton

    def recorded(self) -> Fault:
        """The fault that generated code, or a check, has written down."""
        get = self.grid.get
        kind, warp, lane = FAULT_KINDS[get("fault_kind")], get("fault_warp"), get("fault_lane")
        suspect = self._suspect()
        if suspect is not None and not (kind in _CERTAIN and suspect.kind == FaultKind.UNINITIALIZED):
            raise suspect
        if get("fault_site") < 0:
            line, name = self.lowered.blocks[get("fault_block")][-1 - get("fault_site")]
            text = self._trap() if kind == FaultKind.TRAP else self._bad_mask(name)
            if kind == FaultKind.RACE:
                text = self._in_flight(get("fault_detail"), get("fault_address"))
            return self._new(kind, text, line, warp, lane)
        if kind == FaultKind.DESCRIPTOR:
            text = complaints.descriptor(get("fault_detail"), get("fault_address"))
            return self._new(kind, text, self.lowered.sites[get("fault_site")].line, warp, lane)
        fault = self._of_access(
            kind, get("fault_site"), get("fault_address"), warp, lane, get("other"), get("other_time")
        )
        if suspect is not None:
            # The thread that was to write may not have come that far: the unwritten memory may be a consequence.
            message = f"{fault.message}; before that, in line {suspect.line}, {suspect.message}"
            place = fault.kernel, fault.file, fault.line, fault.block, fault.thread, fault.address
            fault = Fault(fault.kind, message, *place)
        return fault

    def raise_suspect(self) -> None:
        """Raise the race, or the read of unwritten shared memory, that was remembered."""
        suspect = self._suspect()
        if suspect is not None:
            raise suspect

    def _suspect(self) -> Fault | None:
        """The race, or the read of unwritten shared memory, that was remembered."""
        get = self.cta.get
        address = get("suspect_address")
        if not address:
            return None
        thread = divmod(get("suspect_thread"), LANES)
        other = get("suspect_other"), get("suspect_other_time")
        return self._of_access(FAULT_KINDS[get("suspect_kind")], get("suspect_site"), address, *thread, *other)

    def stuck(self, warp: int) -> Fault:
        """Lanes of a warp wait for others that went another way."""
        block, pcs = self.grid.get("fault_block"), self.cta.warps[warp]["pcs"]
        lane = _first(int(self.cta.warps[warp]["mask"]))
        if not _is_barrier(self.lowered.blocks[block][0][1]):
            self.raise_suspect()
            return self.at_block(
                FaultKind.BAD_MASK, self._bad_mask(self.lowered.blocks[block][0][1]), block, warp, lane
            )
        places = {int(pc) - WAITING: there for there, pc in enumerate(pcs) if pc != NOWHERE and pc - WAITING != block}
        elsewhere, there = places.popitem()
        return self.at_block(FaultKind.BARRIER, self._elsewhere(warp, there, elsewhere), block, warp, lane)

    def skipped_barrier(self, block: int, warp: int, lanes: int) -> Fault:
        """Some lanes of a warp have left the kernel without the barrier of a basic block."""
        return self.at_block(FaultKind.BARRIER, _SKIPPED, block, warp, _first(lanes))

    def other_barrier(self, warp: int, other: int) -> Fault:
        """A warp waits at one barrier for the whole block, and another warp elsewhere."""
        block = int(self.cta.warps[other]["barrier_block"])
        return self.barrier(warp, self._elsewhere(other, 0, block))

    def barrier(self, warp: int, text: str) -> Fault:
        """What is wrong with the barrier that a warp waits at."""
        lanes = int(self.cta.warps["threads"][warp] & self.cta.warps[warp]["live"])
        return self.at_block(FaultKind.BARRIER, text, int(self.cta.warps[warp]["barrier_block"]), warp, _first(lanes))

    def at_block(self, kind: FaultKind, text: str, block: int, warp: int, lane: int) -> Fault:
        """A fault at the beginning of a basic block."""
        return self._new(kind, text, self._line(block), warp, lane)

    def deadlock(self) -> TimedOut:
        (told, line), who = waits(self.grid), "program" if self._programs else "thread"
        text = f"a deadlock: every remaining {who} waits for another one" + f"; {told}" * bool(told)
        return self._timed_out(text, line, Deadlock)

    def timed_out(self, limit: int) -> TimedOut:
        """At the limit: one block may have run too long, or there may be too many."""
        grid, cta = self.grid, self.cta
        done, text = grid.get("block_next") - len(grid.residents.busy), f"still running after {limit:,} instructions"
        if done and grid.get("clock") - cta.get("clock_began") < limit // 2:
            blocks = f"{done:,} of {grid.get('block_count'):,} {'programs' if self._programs else 'blocks'} done"
            return self._timed_out(f"{text}, with {blocks}: too much work for the PTX machine")
        return self._timed_out(f"{text}: a loop that does not end?")

    def _timed_out(self, text: str, line: int = 0, kind: type[TimedOut] = TimedOut) -> TimedOut:
        """line: of what is to blame; without one, that of a warp which others wait for."""
        warps = self.cta.warps
        stopped = np.isin(warps["status"], (Status.PREEMPTED, Status.SUSPENDED))
        line = line or self._line(int(warps["pcs"][stopped if stopped.any() else ...].min()))
        return kind(text, source_name(self.grid.name), self.grid.module.file, line)

    def _of_access(
        self, kind: FaultKind, number: int, address: int, warp: int, lane: int, trace: int, time: int
    ) -> Fault:
        """A fault of an access. ``trace`` and ``time`` are those of the other one, if there is one; see races."""
        site = self.lowered.sites[number]
        where, detail = self._where(address, site, warp, lane), self.grid.get("fault_detail")
        of_two = kind in (FaultKind.RACE, FaultKind.UNINITIALIZED, FaultKind.UNFENCED) and trace > 0
        other = self.grid.author(trace, time) if of_two else None
        if kind == FaultKind.BAD_COPY:
            text = RULES[CopyRule(detail)]
        elif kind == FaultKind.BARRIER:
            unnamed = place_of(self.grid, self.cta, address) if where.startswith("byte ") else ""
            text = complaints.mbarrier(detail, unnamed or where, self.lowered.sites[(trace >> SITE) - 1].line)
        elif other and kind == FaultKind.UNFENCED:
            text = complaints.unfenced(site, where, other.thread, other.site)
        elif other and (kind == FaultKind.UNINITIALIZED or other.site.is_bulk or _is_of_copy(trace)):
            names = [name for block in self.lowered.blocks for _, name in block]
            tracked = any("cp.async.mbarrier" in name for name in names) and "cp.async.wait" not in " ".join(names)
            text = complaints.in_flight(site, where, other.site, self._in_cluster(address), tracked)
            grouped = any("commit_group" in name or "wait_all" in name for name in names)
            text += _UNCOMMITTED * ("wait for its group" in text and not grouped)
        elif trace == EXITED:
            text = complaints.outlived(site, where, "mbarrier::complete_tx::bytes" in site.words)
        elif kind == FaultKind.RACE:
            text = self._race(site, where.removeprefix("at "), other, address, self._arrived_alone(trace))
        else:
            text = complaints.access(kind, site, where, self._programs)
            if kind == FaultKind.UNINITIALIZED and "mbarrier." in site.text:
                text += _NO_MBARRIER
            elif kind == FaultKind.UNINITIALIZED and self._in_cluster(address):
                text += complaints.PROMISED * any("complete_tx" in one.text for one in self.lowered.sites)
        return self._new(kind, text, site.line, warp, lane, address)

    def _arrived_alone(self, trace: int) -> bool:
        """Whether another lane has arrived at an mbarrier for a thread of this block; see ``elected``."""
        warp, lane = divmod(trace & THREAD, LANES)
        barriers = self.cta.arrays.get("mbarriers", ())
        return any(
            one["place"] and one["loose_warp"] == warp and int(one["loose_lanes"]) >> lane & 1 for one in barriers
        )

    def _race(self, site: Site, where: str, other: Author | None, address: int, alone: bool) -> str:
        """What is wrong with an access that races, and with which other one; None where that was not kept."""
        block = self.cta.get("block_number")
        shared, programs = self._in_cluster(address), self._programs
        if other is None:
            someone = "the same program" if programs else "another thread"
            return complaints.race(site, where, someone, None, one_block=True, shared=shared)
        own = other.block_number == block
        name = f"thread {other.thread}" + (f" of block {other.block}" if not own else "")
        if programs:
            name = "the same program" if own else f"program {other.block}"
        lines = site.line, other.site.line
        # What races in spite of a barrier between the two lines is in a loop, or in a function called twice.
        looped = own and self._ran_between(lines, _is_barrier)
        signals = self._ran_between(lines, _signals_blocks) and not self._ran_between(lines, _is_fence)
        told = {"in_a_loop": looped, "signals": signals, "programs": programs, "alone": alone}
        return complaints.race(site, where, name, other.site, one_block=own, shared=shared, **told)

    def _ran_between(self, lines: tuple[int, int], wanted: Callable[[str], bool]) -> bool:
        """Whether an instruction of that kind ran between these lines."""
        ran = [block for block, counts in zip(self.lowered.blocks, self.grid.block_counts, strict=True) if counts[0]]
        return any(min(lines) < line < max(lines) for block in ran for line, name in block if wanted(name))

    def _in_cluster(self, address: int) -> bool:
        """Whether an address of the process lies in shared memory of a block of the cluster."""
        offset = address - self.cta.get("window")
        return 0 <= offset >> RANK < len(self.cta.group) and offset % (1 << RANK) < self.grid.get("shared_bytes")

    def _is_shared(self, address: int, site: Site) -> bool:
        """Whether an access is to shared memory."""
        inside = 0 <= address - self.cta.get("shared") < self.grid.get("shared_bytes")
        return site.space == Space.SHARED or (site.space == Space.GENERIC and inside)

    def _where(self, address: int, site: Site, warp: int, lane: int) -> str:
        shared, extent = self.cta.get("shared"), self.grid.get("shared_bytes")
        if self._is_shared(address, site):
            return complaints.shared_place(address - shared, site, extent, self.lowered.shared)
        offset = address - self.cta.get("window")
        if 0 <= offset >> RANK < len(self.cta.group) > 1 and site.space in (Space.GENERIC, Space.CLUSTER):
            peer = self.cta.group[offset >> RANK]
            place = complaints.shared_place(offset & (1 << RANK) - 1, site, extent, self.lowered.shared)
            text = f"{place} of block {complaints.coordinates(peer.place(), self.grid.grid)}"
            return text if peer.get("block_began") else f"at {text}, which has exited"
        local = self.lowered.local_bytes
        start = self.cta.get("local") + (warp * LANES + lane) * local
        if site.space == Space.LOCAL or (site.space == Space.GENERIC and start <= address < start + local):
            has_barrier = any(_is_barrier(name) for block in self.lowered.blocks for _, name in block)
            return complaints.local_place(address - start, site, local, has_barrier)
        return complaints.global_place(address, site, [shadow.buffer for shadow in self.grid.shadows])

    def _trap(self) -> str:
        functions = self.grid.module.functions.values()
        asks = any(Register("%envreg2") in i.operands for function in functions for i in function.body)
        refused = asks and not self.grid.get("cooperative")
        return "stops at a trap" + ": grid.sync() needs a launch with cooperative=True" * refused

    def _in_flight(self, kind: int, place: int) -> str:
        line, name = self.lowered.blocks[place >> POSITION][place & (1 << POSITION) - 1]
        if kind == UNFENCED and line == self.lowered.blocks[0][0][0]:
            line = 0  # the kernel's head, where compilers put constants such as those that an accumulator begins with
        return complaints.register_of_wgmma(kind, name, line)

    def _bad_mask(self, name: str) -> str:
        needed, here = self.grid.get("lanes_needed"), self.grid.get("lanes_here")
        elects = "elect.sync" in name and needed & ~here
        return complaints.bad_mask(name.lstrip("@"), needed, here) + _ELECTS * bool(elects)

    def _elsewhere(self, warp: int, lane: int, block: int) -> str:
        other = complaints.thread_name(self.cta.thread(warp, lane), self.grid.block)
        return f"waits at a barrier, but {other} waits in line {self._line(block)}: {_ALL_MUST_MEET}"

    def _new(self, kind: FaultKind, text: str, line: int, warp: int, lane: int, address: int | None = None) -> Fault:
        block: Dim = self.cta.place()
        thread = self.cta.thread(warp, lane)
        place = self.grid.named(block)
        thread_name = complaints.thread_name(thread, self.grid.block)
        sentence = f"program {place} {text}" if self._programs else f"{thread_name} of block {place} {text}"
        kernel = source_name(self.grid.name)
        return Fault(kind, sentence, kernel, self.grid.module.file, line, block, thread, address)

    def _line(self, block: int) -> int:
        block %= WAITING
        return self.lowered.blocks[block][0][0] if block < len(self.lowered.blocks) else 0


def _is_of_copy(trace: int) -> bool:
    """Whether a trace is that of a copy that may still write."""
    return trace & (ASYNCHRONOUS | WAS_ATOMIC) == ASYNCHRONOUS


def _first(lanes: int) -> int:
    """The least of some lanes."""
    return (lanes & -lanes).bit_length() - 1


def _is_barrier(name: str) -> bool:
    """Whether an instruction is a barrier of the whole block."""
    return name.startswith("bar") and ".warp" not in name


def _is_fence(name: str) -> bool:
    return name.startswith(("fence", "membar"))


def _signals_blocks(name: str) -> bool:
    """Return whether an instruction may set a flag for other blocks: an atomic or a volatile store."""
    is_atomic = name.startswith(("atom", "red"))
    return (is_atomic or name.startswith("st.volatile")) and ".shared" not in name
