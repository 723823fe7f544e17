"""One launch: thread blocks one after another, the warps of a block in turn, and the barriers between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelpath.simt import complaints
from kernelpath.simt.buffers import Buffer, Memory, disjoint, table
from kernelpath.simt.counters import AccessSample
from kernelpath.simt.errors import FAULT_KINDS, Fault, FaultKind, TimedOut
from kernelpath.simt.flow import SERVICES
from kernelpath.simt.layout import (
    COPIES,
    COPY,
    COUNTS,
    LANES,
    LAUNCH,
    NOWHERE,
    SAMPLE,
    WAITING,
    WARP,
    Space,
    Status,
    field_offset,
)
from kernelpath.simt.lowered import Lowered, Site
from kernelpath.simt.printf import c_string, formatted
from kernelpath.simt.ptx import Module
from kernelpath.simt.races import ENTRY, LOW, NOBODY, SITE, THREAD
from kernelpath.simt.schedule import DONE, HOST

__all__ = ["Author", "Dim", "Run", "place_statics"]

TURN = 1 << 24  # lane-instructions between two looks of the host: for the limit, and for Ctrl-C
Dim = tuple[int, int, int]


@dataclass(frozen=True)
class Author:
    """Who made an access: thread and block as one speaks of them, the block's number in the grid, the instruction."""

    thread: str
    block: str
    block_number: int
    site: Site


class Run:
    """One launch, from its records in memory to what they hold at the end."""

    def __init__(
        self, module: Module, name: str, lowered: Lowered, grid: Dim, block: Dim, shared: int, arguments: bytes
    ) -> None:
        self.module, self.name, self.lowered = module, name, lowered
        self.grid, self.block = grid, block
        self.threads = block[0] * block[1] * block[2]
        self.arguments = np.frombuffer(arguments.ljust(16, b"\0"), np.uint8)
        self.printed: list[str] = []
        self.counts = np.zeros(len(lowered.sites) + 1, COUNTS)
        self.samples = np.zeros(len(lowered.sites) + 1, SAMPLE)
        self.block_counts = np.zeros((len(lowered.blocks), 3), np.int64)
        self.record = np.zeros(1, LAUNCH)
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        self._set(
            block_count=grid[0] * grid[1] * grid[2],
            dynamic_bytes=shared,
            local_bytes=lowered.local_bytes,
            local_total=lowered.local_bytes * self.threads,
        )
        for axis, threads, blocks in zip("xyz", block, grid, strict=True):
            self._set(**{f"ntid_{axis}": threads, f"nctaid_{axis}": blocks})
        self._point(params=self.arguments, blocks=self.block_counts, counts=self.counts, samples=self.samples)
        self._place_windows(shared)
        self._make_warps()

    # Records

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            self.record[name] = value

    def _get(self, name: str) -> int:
        return int(self.record[name][0])

    def _point(self, **arrays: npt.NDArray[Any]) -> None:
        for name, array in arrays.items():
            self.arrays[name] = array
            self.record[name] = array.ctypes.data

    def _place_windows(self, dynamic: int) -> None:
        """Shared and local memory, and what is known of their bytes."""
        shared, local = self.lowered.shared_bytes + dynamic, self.lowered.local_bytes * self.threads
        granule = self._granule(Space.SHARED)
        self._set(shared_bytes=shared, shared_granule=granule)
        self._point(shared=aligned(shared), shared_state=np.empty(shared + 1, np.uint8))
        self._point(local=aligned(local), local_state=np.empty(local + 1, np.uint8))
        self._point(shared_history=np.zeros(((shared >> granule) + 2) * ENTRY, np.uint8))

    def _granule(self, space: Space) -> int:
        """log2 of the least access in bytes to a space: the finest that two threads can share without touching."""
        sites = (site for site in self.lowered.sites if site.space in (space, Space.GENERIC))
        return min((site.bytes // site.parts for site in sites), default=4).bit_length() - 1

    def place(self, buffers: Sequence[Buffer], statics: dict[str, npt.NDArray[np.uint8]], memory: Memory) -> None:
        """Give the launch its global memory; ``statics`` holds the variables of the module."""
        self.memory = memory
        own = [Buffer("arguments", self.arguments.ctypes.data, self.arguments.nbytes, 1, dtype="bytes")]
        own += [
            Buffer(name, storage.ctypes.data, self.module.variables[name].size, 1, dtype="bytes")
            for name, storage in statics.items()
        ]
        self._point(symbols=np.array([statics[name].ctypes.data for name in self.lowered.symbols] + [0], np.int64))
        self.shadows = [memory.shadow(buffer, self._granule(Space.GLOBAL)) for buffer in disjoint([*buffers, *own])]
        rows = table(self.shadows)
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        self._point(buffers=rows, began=np.zeros(blocks, np.int64), published=np.zeros(blocks, np.int64))
        self.known = np.zeros((32, 32), np.int64)
        self._point(known=self.known)
        self._set(buffer_count=len(rows), launch_began=memory.time, time=memory.time)

    def state_of(self, buffer: Buffer) -> npt.NDArray[np.uint8]:
        """The states of a buffer's bytes; see ``layout``."""
        for shadow in self.shadows:
            start = buffer.address - shadow.buffer.address
            if start >= 0 and start + buffer.nbytes <= shadow.buffer.nbytes:
                return shadow.state[start : start + buffer.nbytes]
        raise KeyError(buffer.name)

    def accesses(self) -> list[AccessSample]:
        """One request of every instruction that touched global or shared memory."""
        found = []
        for site, counts, sample in zip(self.lowered.sites, self.counts, self.samples, strict=False):
            if not counts["requests"] or not (counts["sectors"] or counts["wavefronts"]):
                continue
            lanes = [lane for lane in range(LANES) if int(sample["mask"]) >> lane & 1]
            addresses = {lane: int(sample["addresses"][lane]) for lane in lanes}
            shared = bool(counts["wavefronts"])
            base, name = self._window_of(addresses[lanes[0]], shared)
            offsets = {lane: address - base for lane, address in addresses.items()}
            place = site.line, site.text, shared, name, site.access, site.bytes, offsets
            found.append(AccessSample(*place, *counts.tolist()))
        return found

    def _window_of(self, address: int, shared: bool) -> tuple[int, str]:
        """Where the tensor, or the shared memory, that an address lies in begins, and the variable's name."""
        if shared:
            base = self._get("shared")
            return base, complaints.source_name(complaints.shared_variable(address - base, self.lowered.shared)[1])
        begun = [shadow.buffer for shadow in self.shadows if shadow.buffer.address <= address]
        return (begun[-1].address, begun[-1].name) if begun else (0, "?")

    def _make_warps(self) -> None:
        count, size = -(-self.threads // LANES), self.lowered.warp_bytes
        self.warp_memory = aligned(count * size)
        self.warps = np.ndarray(count, strided(WARP, size), self.warp_memory.data)
        self.warp_layout = count, size
        thread = np.arange(count * LANES)
        x, y, _ = self.block
        for axis, tid in enumerate((thread % x, thread // x % y, thread // (x * y))):
            self.warps["tid"][:, axis] = tid.reshape(count, LANES)
        exists = (thread < self.threads).reshape(count, LANES)
        self.warps["threads"] = (exists * (1 << np.arange(LANES))).sum(axis=1)
        self.warps["index"] = np.arange(count)
        copies = any(check.function == "copy_async" for check in self.lowered.checks)
        self._point(copies=np.zeros(count * COPIES * copies, COPY))

    # Scheduling

    def execute(self, run_grid: Callable[[int, int, int, int], int], limit: int) -> None:
        """Run every thread block. ``limit`` bounds the lane-instructions. Raises Fault and TimedOut."""
        self.arrivals: dict[int, dict[int, int]] = {}
        granted = 0
        while granted < limit:
            self._set(left=min(TURN, limit - granted))
            granted += min(TURN, limit - granted)
            while self._get("left") >= 0:
                stopped = run_grid(self.record.ctypes.data, self.warp_memory.ctypes.data, *self.warp_layout)
                if stopped == DONE:
                    self.memory.time = self._get("time") + 1
                    return
                if stopped != HOST:
                    self._deal_with(stopped)
                elif self._get("left") >= 0:
                    self._look_at_barriers()
        self._raise_suspect()
        line = self._line(int(self.warps["pcs"].min()))
        raise TimedOut(complaints.source_name(self.name), self.module.file, line, limit)

    def _deal_with(self, number: int) -> None:
        """Do what a warp has stopped for."""
        match Status(int(self.warps[number]["status"])):
            case Status.FAULT:
                raise self._fault()
            case Status.STUCK:
                raise self._stuck(number)
            case Status.HOST:
                self._serve(number)
            case Status.ARRIVED:
                self._arrive(number)
        self.warps["status"][number] = Status.READY

    def _look_at_barriers(self) -> None:
        """No warp can run: open a barrier, or say why none opens."""
        waiting = np.flatnonzero(self.warps["status"] == Status.BARRIER).tolist()
        here = self._complete_barrier(waiting) if waiting else []
        self._raise_suspect()
        self._meet(here, self.arrivals.pop(int(self.warps[here[0]]["barrier"]), {}))
        self.warps["status"][here] = Status.READY

    # Barriers

    def _arrive(self, number: int) -> None:
        time = self._get("time") + 1
        self._set(time=time)
        self.arrivals.setdefault(int(self.warps[number]["barrier"]), {})[number] = time

    def _complete_barrier(self, waiting: list[int]) -> list[int]:
        """The warps of a barrier that all its threads have reached."""
        for barrier in sorted({int(self.warps[number]["barrier"]) for number in waiting}):
            here = [number for number in waiting if self.warps[number]["barrier"] == barrier]
            arrived = self.arrivals.get(barrier, {})
            expected = int(self.warps[here[0]]["barrier_threads"])
            if not expected:
                self._require_all(here)
            if not expected or LANES * (len(here) + len(arrived)) >= expected:
                return here
        raise self._barrier_fault(waiting[0], "waits at a barrier that too few threads of its block reach")

    def _require_all(self, here: list[int]) -> None:
        """A barrier without a count is for the whole block, at one place in the source."""
        gone = self.warps["threads"] & ~self.warps["live"]
        if gone.any():
            number = int(gone.argmax())
            block = int(self.warps[here[0]]["barrier_block"])
            raise self._fault_of(FaultKind.BARRIER, _SKIPPED, block, number, _first(int(gone[number])))
        places = [int(self.warps[number]["barrier_block"]) for number in here]
        if len(here) < len(self.warps) or len(set(places)) > 1:
            other = next((n for n in range(len(self.warps)) if n not in here), here[places.index(max(places))])
            text = self._elsewhere(other, 0, int(self.warps[other]["barrier_block"]))
            raise self._barrier_fault(here[0], text)

    def _meet(self, here: list[int], arrived: dict[int, int]) -> None:
        """All that the warps did before the barrier is now known to those that waited at it."""
        time = self._get("time") + 1
        self._set(time=time)
        everyone = [*here, *arrived]
        self.known[here] = self.known[everyone].max(axis=0)
        self.known[np.ix_(here, here)] = time
        for number, when in arrived.items():
            self.known[here, number] = when
        self._reduce(here)

    def _reduce(self, here: list[int]) -> None:
        """What ``bar.red`` gives: the predicate over all threads."""
        values, lanes = self.warps["barrier_value"][here], self.warps["live"][here]
        operation = self.lowered.blocks[int(self.warps[here[0]]["barrier_block"])][0][1]
        if ".popc" in operation:
            result = sum(int(value).bit_count() for value in values)
        else:
            result = int((values == lanes).all() if ".and" in operation else values.any())
        self.warps["barrier_value"][here] = result

    # Services of the host

    def _serve(self, number: int) -> None:
        warp = self.warps[number]
        service, mask = SERVICES[int(warp["barrier"])], int(warp["mask"])
        rows = np.ascontiguousarray(warp["operands"][:8]).view(np.uint32).reshape(4, 2 * LANES).view(np.uint64)
        for lane in (lane for lane in range(LANES) if mask >> lane & 1):
            first, second, third = (int(rows[row, lane]) for row in range(3))
            if service == "vprintf":
                self.printed.append(formatted(first, second))
                continue
            self._raise_suspect()
            text = f"fails the assertion {c_string(first)!r} of {c_string(second)}, line {third & 0xFFFFFFFF}"
            raise self._fault_of(FaultKind.ASSERTION, text, int(warp["barrier_block"]), number, lane)

    # Complaints

    def _fault(self) -> Fault:
        self._raise_suspect()
        kind, number, lane = FAULT_KINDS[self._get("fault_kind")], self._get("fault_warp"), self._get("fault_lane")
        if self._get("fault_site") < 0:
            line, name = self.lowered.blocks[self._get("fault_block")][-1 - self._get("fault_site")]
            text = "stops at a trap" if kind == FaultKind.TRAP else self._bad_mask(name)
            return self._new_fault(kind, text, line, number, lane)
        return self._fault_at(kind, self._get("fault_site"), self._get("fault_address"), number, lane)

    def _raise_suspect(self) -> None:
        """Raise the race, or the read of unwritten shared memory, that was remembered."""
        if address := self._get("suspect_address"):
            kind, place = FAULT_KINDS[self._get("suspect_kind")], divmod(self._get("suspect_thread"), LANES)
            raise self._fault_at(kind, self._get("suspect_site"), address, *place)

    def _fault_at(self, kind: FaultKind, site: int, address: int, number: int, lane: int) -> Fault:
        """A complaint about one access to memory."""
        accused = self.lowered.sites[site]
        where = self._where(address, accused, number, lane)
        text = self._race(accused, where) if kind == FaultKind.RACE else complaints.access(kind, accused, where)
        return self._new_fault(kind, text, accused.line, number, lane, address)

    def _race(self, site: Site, where: str) -> str:
        """What is wrong with an access that races, and with which other one."""
        trace, time, block = self._get("suspect_other"), self._get("suspect_other_time"), self._get("block_number")
        if trace == NOBODY:
            return complaints.race(site, where, "another thread", None, one_block=True)
        other = self._author(trace, time, block + 1)
        name = f"thread {other.thread}" + (f" of block {other.block}" if other.block_number != block else "")
        return complaints.race(site, where, name, other.site, one_block=other.block_number == block)

    def _author(self, trace: int, time: int, blocks: int) -> Author:
        """Who made an access that the history holds, when so many blocks had begun."""
        number = int(np.searchsorted(self.arrays["began"][:blocks], time, side="right")) - 1
        columns, rows, _ = self.grid
        block = number % columns, number // columns % rows, number // (columns * rows)
        thread, site = self._thread(*divmod(trace & THREAD, LANES)), self.lowered.sites[(trace >> SITE) - 1]
        return Author(
            complaints.coordinates(thread, self.block), complaints.coordinates(block, self.grid), number, site
        )

    def writer(self, address: int) -> Author | None:
        """Who wrote last to an address of global memory; None where this launch did not."""
        for shadow in self.shadows:
            offset = address - shadow.buffer.address
            if 0 <= offset < shadow.buffer.nbytes:
                entry = (offset >> shadow.granule) * ENTRY
                write = int(shadow.history[entry : entry + 8].view(np.int64)[0])
                wrote = write and write >> 32 >= self._get("launch_began")
                return self._author(write & LOW, write >> 32, len(self.arrays["began"])) if wrote else None
        return None

    def _where(self, address: int, site: Site, number: int, lane: int) -> str:
        shared, extent = self._get("shared"), self._get("shared_bytes")
        if site.space == Space.SHARED or (site.space == Space.GENERIC and shared <= address < shared + extent):
            return complaints.shared_place(address - shared, site, extent, self.lowered.shared)
        local = self.lowered.local_bytes
        start = self._get("local") + (number * LANES + lane) * local
        if site.space == Space.LOCAL or (site.space == Space.GENERIC and start <= address < start + local):
            return complaints.local_place(address - start, site, local, self._has_barrier())
        return complaints.global_place(address, site.bytes, [shadow.buffer for shadow in self.shadows])

    def _has_barrier(self) -> bool:
        return any(_is_barrier(name) for block in self.lowered.blocks for _, name in block)

    def _stuck(self, number: int) -> Fault:
        """Lanes of a warp wait for others that went another way."""
        block, pcs = self._get("fault_block"), self.warps[number]["pcs"]
        lane = _first(int(self.warps[number]["mask"]))
        if not _is_barrier(self.lowered.blocks[block][0][1]):
            self._raise_suspect()
            text = self._bad_mask(self.lowered.blocks[block][0][1])
            return self._fault_of(FaultKind.BAD_MASK, text, block, number, lane)
        places = {int(pc) - WAITING: there for there, pc in enumerate(pcs) if pc != NOWHERE and pc - WAITING != block}
        text = self._elsewhere(number, *reversed(places.popitem()))
        return self._fault_of(FaultKind.BARRIER, text, block, number, lane)

    def _bad_mask(self, name: str) -> str:
        return complaints.bad_mask(name.lstrip("@"), self._get("lanes_needed"), self._get("lanes_here"))

    def _elsewhere(self, number: int, lane: int, block: int) -> str:
        other = complaints.thread_name(self._thread(number, lane), self.block)
        return f"waits at a barrier, but {other} waits in line {self._line(block)}: {_ALL_MUST_MEET}"

    def _barrier_fault(self, number: int, text: str) -> Fault:
        lanes = int(self.warps["threads"][number] & self.warps[number]["live"])
        return self._fault_of(FaultKind.BARRIER, text, int(self.warps[number]["barrier_block"]), number, _first(lanes))

    def _fault_of(self, kind: FaultKind, text: str, block: int, number: int, lane: int) -> Fault:
        return self._new_fault(kind, text, self._line(block), number, lane)

    def _new_fault(
        self, kind: FaultKind, text: str, line: int, number: int, lane: int, address: int | None = None
    ) -> Fault:
        x, y, z = (self._get(f"ctaid_{axis}") for axis in "xyz")
        thread = self._thread(number, lane)
        who = f"{complaints.thread_name(thread, self.block)} of block {complaints.coordinates((x, y, z), self.grid)}"
        kernel = complaints.source_name(self.name)
        return Fault(kind, f"{who} {text}", kernel, self.module.file, line, (x, y, z), thread, address)

    def _thread(self, number: int, lane: int) -> Dim:
        x, y, z = (int(n) for n in self.warps[number]["tid"][:, lane])
        return x, y, z

    def _line(self, block: int) -> int:
        block %= 1 << 30
        return self.lowered.blocks[block][0][0] if block < len(self.lowered.blocks) else 0


_SKIPPED = "skipped this barrier: it returned early, or the barrier stands inside an if or a loop that it did not run"
_ALL_MUST_MEET = "all threads of a block must reach the same barrier"


def _first(lanes: int) -> int:
    """The least of some lanes."""
    return (lanes & -lanes).bit_length() - 1


def _is_barrier(name: str) -> bool:
    """Whether an instruction is a barrier of the whole block."""
    return name.startswith("bar") and ".warp" not in name


def place_statics(module: Module) -> dict[str, npt.NDArray[np.uint8]]:
    """Memory for the module's variables, with the values that they begin with."""
    variables = {name: v for name, v in module.variables.items() if v.space in ("global", "const") and v.size}
    statics = {name: aligned(variable.size) for name, variable in variables.items()}
    for name, variable in variables.items():
        initial = variable.initial or b""
        statics[name][: len(initial)] = np.frombuffer(initial, np.uint8)
        for offset, target in variable.pointers:
            address = np.array([statics[target].ctypes.data], np.int64)
            statics[name][offset : offset + 8] = address.view(np.uint8)
    return statics


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes that begin at a multiple of 256."""
    memory = np.zeros(size + 512, np.uint8)
    return memory[-memory.ctypes.data % 256 :]


def strided(record: np.dtype[np.void], size: int) -> np.dtype[np.void]:
    """The record padded to ``size`` bytes."""
    fields = record.fields
    assert fields is not None
    offsets = [field_offset(record, name) for name in fields]
    formats = [kind[0] for kind in fields.values()]
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size})
