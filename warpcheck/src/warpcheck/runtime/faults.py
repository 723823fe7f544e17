"""Make the Fault that ends a launch from what its records say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from warpcheck.errors import FAULT_KINDS, Deadlock, Fault, FaultKind, TimedOut
from warpcheck.layout import LANES, NOWHERE, POSITION, UNFENCED, WAITING, Access, Space, Status
from warpcheck.lowered_kernel import AccessSite
from warpcheck.ptx import Register
from warpcheck.runtime import fault_messages
from warpcheck.runtime.access_history import ASYNCHRONOUS, BLOCK_EXITED, SITE_SHIFT, WAS_ATOMIC, thread_of
from warpcheck.runtime.address_spaces import RANK
from warpcheck.runtime.arrays import Dim
from warpcheck.runtime.copy_rules import RULES, CopyRule
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.cta_barrier import BARRIERS
from warpcheck.runtime.deadlock import describe_mbarriers, describe_waits
from warpcheck.runtime.launch import AccessOrigin, Grid
from warpcheck.runtime.symbols import source_name
from warpcheck.runtime.tensor_cells import COLUMN_BYTES, COLUMNS
from warpcheck.runtime.tensor_rules import CONFLICTS, TensorRule

__all__ = ["Faults"]

# Faults that stand whatever other threads do: a deferred read of unwritten memory comes second.
_CERTAIN = (FaultKind.OUT_OF_BOUNDS, FaultKind.MISALIGNED)

_UNCOMMITTED = "; no copy of this kernel is in a group: commit it (commit_group) in front of the wait"
_NO_MBARRIER = "; nothing has initialized an mbarrier there: one thread has to (mbarrier_init), then a barrier"
_ELECTS = (
    "; elect.sync takes the whole warp: cute.copy of TMA elects its own thread, and so do cute.gemm and cute.copy of "
    "tcgen05, so call them outside of elect_one()"
)
_ALL_MUST_MEET = "all threads of a block must reach the same barrier"
# Bytes after the parameters of a kernel in which a generic address is taken for one past their end.
_PARAMETERS_END = 4096
# The most branches that a message about a skipped barrier names.
_MAX_BRANCHES = 3


class Faults:
    """Makes the faults of a launch and of its resident block. A thread is given by its warp and its lane."""

    def __init__(self, grid: Grid, cta: Cta) -> None:
        self.grid = grid
        self.cta = cta
        self.lowered = grid.lowered
        self._programs = grid.module.of_triton

    def recorded_fault(self) -> Fault:
        """Return the fault that generated code, or a check, has recorded."""
        launch_field = self.grid.get
        kind = FAULT_KINDS[launch_field("fault_kind")]
        warp = launch_field("fault_warp")
        lane = launch_field("fault_lane")
        deferred = self._deferred_fault()
        # The deferred fault came first and usually explains this one, except for an access that is wrong in any order.
        if deferred is not None and not (kind in _CERTAIN and deferred.kind == FaultKind.UNINITIALIZED):
            raise deferred
        # Not an access: generated code recorded ~(number of the instruction) and its basic block. A race there is about
        # a register of wgmma; see lower.wgmma_hazards.
        if launch_field("fault_site") < 0:
            line, name = self.lowered.blocks[launch_field("fault_block")][-1 - launch_field("fault_site")]
            text = self._describe_trap() if kind == FaultKind.TRAP else self._describe_bad_mask(name)
            if kind == FaultKind.RACE:
                text = self._describe_register(launch_field("fault_detail"), launch_field("fault_address"))
            return self._make_fault(kind, text, line, warp, lane)
        is_tensor = self.lowered.sites[launch_field("fault_site")].space == Space.TENSOR
        if kind == FaultKind.DESCRIPTOR and not is_tensor:
            text = fault_messages.describe_descriptor(launch_field("fault_detail"), launch_field("fault_address"))
            return self._make_fault(kind, text, self.lowered.sites[launch_field("fault_site")].line, warp, lane)
        fault = self._access_fault(
            kind,
            launch_field("fault_site"),
            launch_field("fault_address"),
            warp,
            lane,
            launch_field("conflict_id"),
            launch_field("conflict_time"),
        )
        if deferred is not None:
            # The thread that was to write may not have come that far: the unwritten memory may be a consequence.
            message = f"{fault.message}; before that, in line {deferred.line}, {deferred.message}"
            location = fault.kernel, fault.file, fault.line, fault.block, fault.thread, fault.address
            conflict_line = fault.conflict_line
            fault = Fault(fault.kind, message, *location)
            fault.conflict_line = conflict_line
        return fault

    def raise_deferred(self) -> None:
        """Raise the deferred fault, if there is one."""
        deferred = self._deferred_fault()
        if deferred is not None:
            raise deferred

    def _deferred_fault(self) -> Fault | None:
        """Return the deferred race or read of unwritten shared memory, if there is one."""
        cta_field = self.cta.get
        address = cta_field("deferred_address")
        if not address:
            return None
        kind = FAULT_KINDS[cta_field("deferred_kind")]
        thread = divmod(cta_field("deferred_thread"), LANES)
        other = cta_field("deferred_conflict_id"), cta_field("deferred_conflict_time")
        fault = self._access_fault(kind, cta_field("deferred_site"), address, *thread, *other)
        fault.is_in_shared_memory = kind == FaultKind.UNINITIALIZED  # in other memory, such a read is not deferred
        return fault

    def stuck_warp(self, warp: int) -> Fault:
        """Return the fault of a warp whose lanes wait for others that took another branch."""
        block = self.grid.get("fault_block")
        pcs = self.cta.warps[warp]["pcs"]
        lane = _lowest_lane(int(self.cta.warps[warp]["mask"]))
        # What waits inside a warp is a collective with a mask, and not a barrier of the block.
        if not _is_barrier(self.lowered.blocks[block][0][1]):
            # An earlier race may be why the threads diverged, so it is the better explanation.
            self.raise_deferred()
            return self.fault_at_block(
                FaultKind.BAD_MASK, self._describe_bad_mask(self.lowered.blocks[block][0][1]), block, warp, lane
            )
        waiting_blocks = {
            int(pc) - WAITING: other_lane
            for other_lane, pc in enumerate(pcs)
            if pc != NOWHERE and pc - WAITING != block
        }
        other_block, other_lane = waiting_blocks.popitem()
        return self.fault_at_block(
            FaultKind.BARRIER, self._describe_other_barrier(warp, other_lane, other_block, block), block, warp, lane
        )

    def skipped_barrier(self, block: int, warp: int, lanes: int) -> Fault:
        """Return the fault of lanes that have left the kernel without the barrier of a basic block."""
        return self.fault_at_block(
            FaultKind.BARRIER, f"skipped this barrier{self._describe_way_past(block)}", block, warp, _lowest_lane(lanes)
        )

    def other_barrier(self, warp: int, other_warp: int) -> Fault:
        """Return the fault of a warp that waits at a barrier of the whole block while another warp waits elsewhere."""
        block, other_block = (int(self.cta.warps[number]["barrier_block"]) for number in (warp, other_warp))
        return self.barrier(warp, self._describe_other_barrier(other_warp, 0, other_block, block))

    def miscounted_barrier(self, warp: int) -> Fault:
        """Return the fault of a warp at a barrier whose phase has another thread count, and may still be open."""
        number, threads = (int(self.cta.warps[warp][name]) for name in ("barrier", "barrier_threads"))
        other_threads = int(self.cta.array("barriers")[number % BARRIERS]["other_threads"])
        own = f"{threads} threads" if threads else "the whole block"
        return self.barrier(
            warp,
            f"comes to barrier {number} for {own} while its phase for {other_threads} threads may be incomplete: use "
            "another barrier, or wait first for a thread that has waited for that phase",
        )

    def barrier(self, warp: int, text: str) -> Fault:
        """Return a fault of the barrier that a warp waits at."""
        lanes = int(self.cta.warps["threads"][warp] & self.cta.warps[warp]["live"])
        return self.fault_at_block(
            FaultKind.BARRIER, text, int(self.cta.warps[warp]["barrier_block"]), warp, _lowest_lane(lanes)
        )

    def fault_at_block(self, kind: FaultKind, text: str, block: int, warp: int, lane: int) -> Fault:
        """Return a fault at the beginning of a basic block."""
        return self._make_fault(kind, text, self._line_of_block(block), warp, lane)

    def deadlock(self) -> TimedOut:
        """Return the Deadlock of the launch."""
        (waits, line) = describe_waits(self.grid)
        who = "program" if self._programs else "thread"
        text = f"a deadlock: every remaining {who} waits for another one" + f"; {waits}" * bool(waits)
        return self._timed_out(text, line, Deadlock)

    def timed_out(self, limit: int) -> TimedOut:
        """Return the TimedOut at the limit: one block may have run too long, or there may be too many."""
        grid = self.grid
        cta = self.cta
        blocks_done = grid.get("block_next") - len(grid.residents.resident)
        text = f"still running after {limit:,} instructions"
        # A block that used most of the limit by itself is probably in an endless loop. If it used little of it, the
        # blocks are many.
        if blocks_done and grid.get("clock") - cta.get("clock_began") < limit // 2:
            blocks = f"{blocks_done:,} of {grid.get('block_count'):,} {'programs' if self._programs else 'blocks'} done"
            return self._timed_out(f"{text}, with {blocks}: too much work for the PTX machine")
        return self._timed_out(f"{text}: a loop that does not end?")

    def _timed_out(self, text: str, line: int = 0, kind: type[TimedOut] = TimedOut) -> TimedOut:
        """Return a TimedOut at ``line``, or at the line of a warp that others wait for."""
        warps = self.cta.warps
        stopped = np.isin(warps["status"], (Status.PREEMPTED, Status.SUSPENDED))
        line = line or self._line_of_block(int(warps["pcs"][stopped if stopped.any() else ...].min()))
        return kind(text, source_name(self.grid.name), self.grid.module.file, line)

    def _access_fault(
        self, kind: FaultKind, site_number: int, address: int, warp: int, lane: int, access_id: int, time: int
    ) -> Fault:
        """Return the fault of an access. ``access_id`` and ``time`` are those of the conflicting one, if any; see
        ``races``.
        """
        site = self.lowered.sites[site_number]
        if site.space == Space.TENSOR:
            return self._tensor_fault(kind, site, address, warp, lane, access_id, time)
        place = self._describe_place(address, site, warp, lane)
        detail = self.grid.get("fault_detail")
        involves_two = kind in (FaultKind.RACE, FaultKind.UNINITIALIZED, FaultKind.UNFENCED) and access_id > 0
        origin = self.grid.origin_of(access_id, time) if involves_two else None
        if kind == FaultKind.BAD_COPY:
            text = RULES[CopyRule(detail)]
        elif kind == FaultKind.BARRIER:
            unnamed = describe_mbarriers(self.grid, self.cta, address) if place.startswith("byte ") else ""
            text = fault_messages.describe_mbarrier_misuse(
                detail, unnamed or place, self.lowered.sites[(access_id >> SITE_SHIFT) - 1].line
            )
        elif origin and kind == FaultKind.UNFENCED:
            text = fault_messages.describe_unfenced(site, place, origin.thread, origin.site)
        elif origin and (kind == FaultKind.UNINITIALIZED or origin.site.is_bulk or _is_async_write(access_id)):
            names = [name for block in self.lowered.blocks for _, name in block]
            tracked = any("cp.async.mbarrier" in name for name in names) and "cp.async.wait" not in " ".join(names)
            text = fault_messages.describe_in_flight(site, place, origin.site, self._in_cluster(address), tracked)
            grouped = any("commit_group" in name or "wait_all" in name for name in names)
            text += _UNCOMMITTED * ("wait for its group" in text and not grouped)
        elif access_id == BLOCK_EXITED:
            text = fault_messages.describe_outlived_copy(site, place, "mbarrier::complete_tx::bytes" in site.words)
        elif kind == FaultKind.RACE:
            text = self._describe_race(
                site, place.removeprefix("at "), origin, address, self._is_partial_arrival(access_id)
            )
        else:
            text = fault_messages.describe_access(kind, site, place, self._programs)
            if kind == FaultKind.UNINITIALIZED and "mbarrier." in site.text:
                text += _NO_MBARRIER
            elif kind == FaultKind.UNINITIALIZED and self._in_cluster(address):
                text += fault_messages.PROMISED * any(
                    "complete_tx" in access_site.text for access_site in self.lowered.sites
                )
        fault = self._make_fault(kind, text, site.line, warp, lane, address)
        if origin and not origin.kernel:  # another kernel may be in another file
            fault.conflict_line = origin.site.line
        return fault

    def _tensor_fault(
        self, kind: FaultKind, site: AccessSite, address: int, warp: int, lane: int, access_id: int, time: int
    ) -> Fault:
        """Return the fault of an instruction that breaks a rule of tensor memory, or of its descriptors."""
        rule = TensorRule(self.grid.get("fault_detail"))
        conflicts = rule in CONFLICTS and access_id > 0
        origin = self.grid.origin_of(access_id, time) if conflicts else None
        text = fault_messages.describe_tensor_rule(
            rule,
            site,
            self._describe_cell(address),
            warp,
            self.grid.get("fault_value"),
            (origin.site, origin.thread) if origin else None,
        )
        fault = self._make_fault(kind, text, site.line, warp, lane)
        if origin:
            fault.conflict_line = origin.site.line
        return fault

    def _describe_cell(self, address: int) -> str:
        """Describe a cell of tensor memory, of this block or of the other one of its pair."""
        for cta in (self.cta, *self.cta.cluster):
            column, offset = divmod(address - cta.get("tensor_memory"), COLUMN_BYTES)
            if 0 <= column < COLUMNS:
                block = "" if cta is self.cta else f" of block {self.grid.format_block(cta.coordinates())}"
                return f"column {column} of tensor memory{block}, from lane {offset // 4} on"
        return "a column that tensor memory does not have"

    def _is_partial_arrival(self, access_id: int) -> bool:
        """Return whether another lane has arrived at an mbarrier for a thread; see ``partial_arrival``."""
        warp, lane = divmod(thread_of(access_id), LANES)
        barriers = self.cta.mbarriers
        return any(
            record["object_address"] and record["partial_warp"] == warp and int(record["unreleased_lanes"]) >> lane & 1
            for record in barriers
        )

    def _describe_race(
        self, site: AccessSite, place: str, origin: AccessOrigin | None, address: int, alone: bool
    ) -> str:
        """Describe a race of an access with another one; None if that was not kept."""
        block = self.cta.get("block_number")
        shared = self._in_cluster(address)
        programs = self._programs
        if origin is None:
            someone = "the same program" if programs else "another thread"
            return fault_messages.describe_race(site, place, someone, None, one_block=True, shared=shared)
        is_own_block = origin.block_number == block and not origin.kernel
        name = f"thread {origin.thread}" + (f" of block {origin.block}" if not is_own_block else "")
        if programs:
            name = "the same program" if is_own_block else f"program {origin.block}"
        lines = site.line, origin.site.line
        # What races in spite of a barrier between the two lines is in a loop, or in a function called twice.
        in_a_loop = is_own_block and self._executed_between(lines, _is_barrier)
        signals = self._executed_between(lines, _signals_blocks) and not self._executed_between(lines, _is_fence)
        circumstances = {"in_a_loop": in_a_loop, "signals": signals, "programs": programs, "is_partial_arrival": alone}
        return fault_messages.describe_race(
            site,
            place,
            name,
            origin.site,
            one_block=is_own_block,
            shared=shared,
            kernel=origin.kernel,
            **circumstances,
        )

    def _executed_between(self, lines: tuple[int, int], predicate: Callable[[str], bool]) -> bool:
        """Return whether an instruction for which ``predicate`` holds was executed between these lines."""
        executed = [
            block for block, counts in zip(self.lowered.blocks, self.grid.block_counts, strict=True) if counts[0]
        ]
        return any(min(lines) < line < max(lines) for block in executed for line, name in block if predicate(name))

    def _in_cluster(self, address: int) -> bool:
        """Return whether an address is in shared memory of a block of the cluster."""
        offset = address - self.cta.get("window")
        return 0 <= offset >> RANK < len(self.cta.cluster) and offset % (1 << RANK) < self.grid.get("shared_bytes")

    def _is_shared(self, address: int, site: AccessSite) -> bool:
        """Return whether an access is to shared memory of this block."""
        inside = 0 <= address - self.cta.get("shared") < self.grid.get("shared_bytes")
        return site.space == Space.SHARED or (site.space in (Space.GENERIC, Space.CLUSTER) and inside)

    def _describe_place(self, address: int, site: AccessSite, warp: int, lane: int) -> str:
        shared = self.cta.get("shared")
        extent = self.grid.get("shared_bytes")
        if self._is_shared(address, site):
            return fault_messages.describe_shared_offset(address - shared, site, extent, self.lowered.shared)
        offset = address - self.cta.get("window")
        if 0 <= offset >> RANK < len(self.cta.cluster) > 1 and site.space in (Space.GENERIC, Space.CLUSTER):
            peer = self.cta.cluster[offset >> RANK]
            place = fault_messages.describe_shared_offset(offset & (1 << RANK) - 1, site, extent, self.lowered.shared)
            text = f"{place} of block {fault_messages.format_coordinates(peer.coordinates(), self.grid.grid)}"
            return text if peer.get("block_began") else f"at {text}, which has exited"
        local = self.lowered.local_bytes
        start = self.cta.get("local") + (warp * LANES + lane) * local
        if site.space == Space.LOCAL or (site.space == Space.GENERIC and start <= address < start + local):
            has_barrier = any(_is_barrier(name) for block in self.lowered.blocks for _, name in block)
            return fault_messages.describe_local_offset(address - start, site, local, has_barrier)
        if 0 <= (offset := address - self.cta.get("local")) < self.grid.get("local_total"):
            owner = fault_messages.thread_name(self.cta.thread(*divmod(offset // local, LANES)), self.grid.block)
            return f"in the local memory of {owner}: only that thread can use its address"
        buffers = [shadow.buffer for shadow in self.grid.shadows]
        offset = address - self.grid.get("params")
        # A tensor may lie right after the parameters, and compilers access it in global space.
        end = self.grid.get("param_bytes") + _PARAMETERS_END * (site.space == Space.GENERIC)
        if 0 <= offset < end and site.space != Space.PARAM:
            holders = [buffer for buffer in buffers if 0 <= address - buffer.address < buffer.nbytes]
            if not holders or site.access != Access.LOAD:
                return fault_messages.describe_parameter_offset(offset, self.grid.get("param_bytes"))
        place = fault_messages.describe_global_address(address, site, buffers)
        is_constant = 0 <= address - self.grid.get("const_began") < self.grid.get("const_bytes")
        if is_constant and site.access != Access.LOAD:
            return f"at {place}, a __constant__ variable, which is read-only"
        return place

    def _describe_trap(self) -> str:
        functions = self.grid.module.functions.values()
        needs_cooperative = any(Register("%envreg2") in i.operands for function in functions for i in function.body)
        is_not_cooperative = needs_cooperative and not self.grid.get("cooperative")
        return "stops at a trap" + ": grid.sync() needs a launch with cooperative=True" * is_not_cooperative

    def _describe_register(self, kind: int, place: int) -> str:
        line, name = self.lowered.blocks[place >> POSITION][place & (1 << POSITION) - 1]
        if kind == UNFENCED and line == self.lowered.blocks[0][0][0]:
            line = 0  # the kernel's head, where compilers put constants such as those that an accumulator begins with
        return fault_messages.describe_wgmma_register(kind, name, line)

    def _describe_bad_mask(self, name: str) -> str:
        needed = self.grid.get("lanes_needed")
        here = self.grid.get("lanes_here")
        elects = "elect.sync" in name and needed & ~here
        return fault_messages.describe_bad_mask(name.lstrip("@"), needed, here) + _ELECTS * bool(elects)

    def _describe_other_barrier(self, warp: int, lane: int, block: int, own_block: int) -> str:
        other_thread = fault_messages.thread_name(self.cta.thread(warp, lane), self.grid.block)
        line = self._line_of_block(block)
        place = f"in line {line}"
        if line == self._line_of_block(own_block):
            # Basic blocks of one line: copies of a loop's body, or of a function that was inlined.
            place = "in another iteration of the same loop, or in another call of the same function"
        return f"waits at a barrier, but {other_thread} waits {place}: {_ALL_MUST_MEET}"

    def _describe_way_past(self, barrier: int) -> str:
        """Name the branches that led threads past the barrier of a basic block.

        Such a branch is the last from which a path leads to the barrier: the way that was taken does not. A thread that
        left a loop with the barrier passed such a branch, too.
        """
        blocks = self.lowered.blocks
        successors = self.lowered.successors
        before_barrier = _ancestors(successors, barrier)
        branches: list[int] = []
        for number in before_barrier:
            ways_past = {successor for successor in successors[number] if successor != barrier} - before_barrier
            is_exit = blocks[number][-1][1].startswith(("@ret", "@exit"))
            if is_exit or any(self.grid.block_counts[successor][0] for successor in ways_past):
                branches.append(number)
        lines = _condition_lines(blocks, branches)
        if not lines or len(lines) > _MAX_BRANCHES:
            return f": {_ALL_MUST_MEET}"
        in_loop = [number for number in branches if barrier in _ancestors(successors, number)]
        # A compiler often tests the condition of a loop once more in front of it.
        kind = "loop" if _condition_lines(blocks, in_loop) == lines else "condition"
        return f", because of the {kind} in line {' or '.join(map(str, lines))}: {_ALL_MUST_MEET}"

    def _make_fault(
        self, kind: FaultKind, text: str, line: int, warp: int, lane: int, address: int | None = None
    ) -> Fault:
        block: Dim = self.cta.coordinates()
        thread = self.cta.thread(warp, lane)
        block_name = self.grid.format_block(block)
        thread_name = fault_messages.thread_name(thread, self.grid.block)
        sentence = f"program {block_name} {text}" if self._programs else f"{thread_name} of block {block_name} {text}"
        kernel = source_name(self.grid.name)
        return Fault(kind, sentence, kernel, self.grid.module.file, line, block, thread, address)

    def _line_of_block(self, block: int) -> int:
        block %= WAITING
        return self.lowered.blocks[block][0][0] if block < len(self.lowered.blocks) else 0


def _condition_lines(blocks: Sequence[Sequence[tuple[int, str]]], branches: Iterable[int]) -> list[int]:
    """Return the lines of the conditions of the branches that end these basic blocks.

    The compiler may combine several conditions, for example those of nested if statements, by a logical operation.
    """
    lines: set[int] = set()
    for number in branches:
        block = blocks[number]
        lines.add(block[-1][0])
        if any(name.startswith(("and.pred", "or.pred")) for _, name in block):
            lines.update(line for line, name in block if name.startswith("setp"))
    return sorted(lines - {0})


def _ancestors(successors: Sequence[Sequence[int]], block: int) -> set[int]:
    """Return the basic blocks from which a path of at least one step leads to ``block``."""
    ancestors: set[int] = set()
    reached = {block}
    while reached:
        reached = {
            number for number, following in enumerate(successors) if number not in ancestors and reached & {*following}
        }
        ancestors |= reached
    return ancestors


def _is_async_write(access_id: int) -> bool:
    """Return whether an access id is that of a copy that may still write."""
    return access_id & (ASYNCHRONOUS | WAS_ATOMIC) == ASYNCHRONOUS


def _lowest_lane(lanes: int) -> int:
    """Return the lowest of some lanes."""
    return (lanes & -lanes).bit_length() - 1


def _is_barrier(name: str) -> bool:
    """Return whether an instruction is a barrier of the whole block."""
    return name.startswith("bar") and ".warp" not in name


def _is_fence(name: str) -> bool:
    return name.startswith(("fence", "membar"))


def _signals_blocks(name: str) -> bool:
    """Return whether an instruction may set a flag for other blocks: an atomic or a volatile store."""
    is_atomic = name.startswith(("atom", "red"))
    return (is_atomic or name.startswith("st.volatile")) and ".shared" not in name
