"""Launching a kernel: thread blocks one after another, the warps of a block in turn, barriers between them."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kernelpath.simt import ptx
from kernelpath.simt.compiler import Program, compile_kernel
from kernelpath.simt.counters import LineCounters
from kernelpath.simt.errors import Fault, FaultKind, TimedOut
from kernelpath.simt.instructions import FAULT_KINDS
from kernelpath.simt.layout import BUFFER, COUNTS, LANES, LAUNCH, NOWHERE, SITE, WARP, Access, Space, Status, field_offset
from kernelpath.simt.lower import Lowered, parameter_offsets
from kernelpath.simt.memory import UNWRITTEN, WRITTEN

__all__ = ["Buffer", "Kernel", "Launch", "Memory", "Module", "Param", "load"]

SLICE = 1 << 20  # lane-instructions that a warp may run before another one has its turn
DEFAULT_LIMIT = 1 << 36
Dim = tuple[int, int, int]


@dataclass(frozen=True)
class Buffer:
    """A span of CPU memory that a kernel may touch.

    ``itemsize`` is in bytes and only words the complaints. ``initialised`` is false for memory whose reading before
    it is written is a mistake.
    """

    name: str
    address: int
    nbytes: int
    itemsize: int
    initialised: bool = True


@dataclass(frozen=True)
class Param:
    """A kernel parameter: PTX type, size and alignment in bytes."""

    name: str
    type: str
    size: int
    align: int


@dataclass(frozen=True)
class Kernel:
    """What is known of a kernel before it is launched. ``reqntid`` is empty where the PTX does not fix the block."""

    name: str
    params: tuple[Param, ...]
    reqntid: tuple[int, ...]
    registers: int | None = None


@dataclass
class Launch:
    """What a launch did: counters by source line of ``file``, and the text it printed.

    ``instructions`` counts lane-instructions. ``buffers_written`` has, for each buffer's name, one bool a byte.
    """

    kernel: str
    file: str
    lines: dict[int, LineCounters]
    totals: LineCounters
    instructions: int
    printed: str
    buffers_written: dict[str, npt.NDArray[np.bool_]]


@dataclass
class _Shadow:
    """What is remembered of a buffer's bytes between launches."""

    buffer: Buffer
    state: npt.NDArray[np.uint8]
    history: npt.NDArray[np.int64] | None = None
    granule: int = -1


class Memory:
    """Remembers which bytes have been written, over several launches on the same buffers."""

    def __init__(self) -> None:
        self.shadows: dict[tuple[int, int], _Shadow] = {}
        self.time = 1

    def shadow(self, buffer: Buffer, granule: int) -> _Shadow:
        """The shadow of a buffer, its history kept for granules of 2**granule bytes."""
        key = (buffer.address, buffer.nbytes)
        shadow = self.shadows.get(key)
        if shadow is None:
            state = np.full(buffer.nbytes, 0 if buffer.initialised else UNWRITTEN, np.uint8)
            shadow = self.shadows[key] = _Shadow(buffer, state)
        if shadow.granule != granule:
            shadow.history, shadow.granule = np.zeros((buffer.nbytes >> granule) * 2 + 2, np.int64), granule
        return shadow


class Module:
    """A loaded PTX file. Kernels are compiled when they are first launched."""

    def __init__(self, text: str, source: str | None) -> None:
        self.parsed = ptx.parse(text, source)
        self.digest = hashlib.sha256(f"{source}\0{text}".encode()).hexdigest()
        self.programs: dict[str, Program] = {}
        self.memory = Memory()

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels of the file by name."""
        return {
            name: Kernel(name, tuple(Param(p.name, p.type, p.size, p.align) for p in function.params), function.reqntid)
            for name, function in self.parsed.functions.items()
            if function.entry
        }

    def launch(
        self,
        name: str,
        *,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int = 0,
        args: Sequence[int | float | bytes] = (),
        buffers: Sequence[Buffer] = (),
        memory: Memory | None = None,
        max_instructions: int | None = None,
    ) -> Launch:
        """Run a kernel to its end.

        ``shared`` is dynamic shared memory in bytes; ``args`` are packed by the parameters' types, pointers are ints;
        ``memory`` keeps what is known of the buffers' bytes from one launch to the next.

        Raises Fault, Unsupported, TimedOut, and KeyError or ValueError for a launch that is not possible.
        """
        if name not in self.programs:
            self.programs[name] = compile_kernel(self.parsed, name, self.digest)
        arguments = pack(self.parsed.functions[name], args)
        run = _Run(self, name, _dim(grid), _dim(block), shared, arguments, buffers, memory or Memory())
        return run.execute(max_instructions or DEFAULT_LIMIT)


def load(text: str, source: str | None = None) -> Module:
    """Load PTX ``text``. Line numbers refer to ``source``, else to the first file that the PTX names.

    Equal texts give the same Module. Raises ValueError for text that is not PTX.
    """
    key = (text, source)
    if key not in _MODULES:
        _MODULES[key] = Module(text, source)
    return _MODULES[key]


_MODULES: dict[tuple[str, str | None], Module] = {}
_CODES = {"f32": "f", "f64": "d", "f16": "e"}


def pack(kernel: ptx.Function, args: Sequence[int | float | bytes]) -> bytes:
    """Kernel arguments as the bytes of its parameter space."""
    if len(args) != len(kernel.params):
        raise ValueError(f"{kernel.name} takes {len(kernel.params)} arguments, {len(args)} were given")
    packed = bytearray()
    for (parameter, offset), value in zip(parameter_offsets(kernel), args, strict=True):
        packed = packed.ljust(offset, b"\0")
        if isinstance(value, bytes):
            packed += value.ljust(parameter.size, b"\0")[: parameter.size]
        elif parameter.type in _CODES or isinstance(value, float):
            packed += struct.pack("<" + (_CODES.get(parameter.type) or "..efffd"[parameter.size.bit_length()]), value)
        else:
            packed += (int(value) & (1 << 8 * parameter.size) - 1).to_bytes(parameter.size, "little")
    return bytes(packed)


def _dim(extents: Sequence[int]) -> Dim:
    x, y, z = (*map(int, extents), 1, 1, 1)[:3]
    if min(x, y, z) < 1:
        raise ValueError(f"a grid or block of {tuple(extents)} has nothing to run")
    return x, y, z


class _Run:
    """One launch: its records in memory and the loop over thread blocks."""

    def __init__(
        self,
        module: Module,
        name: str,
        grid: Dim,
        block: Dim,
        shared: int,
        arguments: bytes,
        buffers: Sequence[Buffer],
        memory: Memory,
    ) -> None:
        self.module, self.name, self.grid, self.block, self.memory = module, name, grid, block, memory
        self.program = module.programs[name]
        self.lowered: Lowered = self.program.lowered
        self.threads = block[0] * block[1] * block[2]
        if self.threads > 1024:
            raise ValueError(f"a block of {self.threads} threads is larger than 1024")
        self.printed: list[str] = []
        self.arguments = np.frombuffer(arguments.ljust(16, b"\0"), np.uint8)
        self._place_memory(shared, buffers)
        self._fill_record(shared)
        self._make_warps()

    def _place_memory(self, shared: int, buffers: Sequence[Buffer]) -> None:
        lowered = self.lowered
        self.shared_bytes = lowered.shared_bytes + shared
        self.shared = _aligned(self.shared_bytes)
        self.shared_state = np.empty(self.shared_bytes + 16, np.uint8)
        self.shared_granule = _granule(lowered, (Space.SHARED, Space.GENERIC))
        self.shared_history = np.zeros((self.shared_bytes >> self.shared_granule) * 2 + 2, np.int64)
        self.local = _aligned(lowered.local_bytes * self.threads)
        self.local_state = np.empty(lowered.local_bytes * self.threads + 16, np.uint8)
        self.symbols, constants = self._place_symbols()
        granule = _granule(lowered, (Space.GLOBAL, Space.GENERIC))
        spans = sorted([*buffers, *constants], key=lambda buffer: buffer.address)
        self.shadows = [self.memory.shadow(buffer, granule) for buffer in spans]
        self.buffers = np.zeros(len(spans) + 1, BUFFER)
        for row, shadow in zip(self.buffers[1:], self.shadows, strict=True):
            assert shadow.history is not None
            row["address"], row["bytes"] = shadow.buffer.address, shadow.buffer.nbytes
            row["state"], row["history"] = shadow.state.ctypes.data, shadow.history.ctypes.data
            row["granule"] = shadow.granule

    def _place_symbols(self) -> tuple[npt.NDArray[np.int64], list[Buffer]]:
        """Module-level variables that the kernel names: their addresses, and buffers that hold them."""
        variables = self.module.parsed.variables
        self.storage = {name: _aligned(variables[name].size) for name in self.lowered.symbols}
        for name, storage in self.storage.items():
            initial = variables[name].initial
            if initial:
                storage[: len(initial)] = np.frombuffer(initial, np.uint8)
        addresses = [storage.ctypes.data for storage in self.storage.values()]
        buffers = [Buffer(name, s.ctypes.data, variables[name].size, 1) for name, s in self.storage.items()]
        return np.array([*addresses, 0], np.int64), buffers

    def _fill_record(self, shared: int) -> None:
        lowered = self.lowered
        self.counts = np.zeros(len(lowered.sites) + 1, COUNTS)
        self.block_counts = np.zeros((len(lowered.blocks), 3), np.int64)
        self.sites = np.zeros(len(lowered.sites) + 1, SITE)
        for row, site in zip(self.sites, lowered.sites, strict=False):
            row["space"], row["access"], row["bytes"], row["strong"] = site.space, site.access, site.bytes, site.strong
        self.known = np.zeros((32, 32), np.int64)
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        self.began, self.published = np.zeros(blocks, np.int64), np.zeros(blocks, np.int64)
        self.record = np.zeros(1, LAUNCH)
        record = self.record[0]
        record["ntid"], record["nctaid"] = self.block, self.grid
        record["shared_bytes"], record["dynamic_bytes"] = self.shared_bytes, shared
        record["local_bytes"], record["buffer_count"] = lowered.local_bytes, len(self.buffers)
        arrays = {"params": self.arguments, "blocks": self.block_counts, "sites": self.sites, "counts": self.counts}
        arrays |= {"buffers": self.buffers, "symbols": self.symbols, "shared": self.shared, "local": self.local}
        arrays |= {"shared_state": self.shared_state, "shared_history": self.shared_history, "known": self.known}
        arrays |= {"local_state": self.local_state, "began": self.began, "published": self.published}
        for name, array in arrays.items():
            record[name] = array.ctypes.data
        record["shared_granule"] = self.shared_granule
        record["launch_began"] = record["time"] = self.memory.time

    def _make_warps(self) -> None:
        count = -(-self.threads // LANES)
        size = self.lowered.warp_bytes
        self.warp_memory = _aligned(count * size)
        self.warps = np.ndarray(count, _strided(WARP, size), self.warp_memory.data)
        thread = np.arange(count * LANES)
        x, y = self.block[0], self.block[1]
        for axis, tid in enumerate((thread % x, thread // x % y, thread // (x * y))):
            self.warps["tid"][:, axis] = tid.reshape(count, LANES)
        self.exists = (thread < self.threads).reshape(count, LANES)
        self.live = (self.exists * (1 << np.arange(LANES))).sum(axis=1).astype(np.uint32)
        self.start = np.where(self.exists, 0, NOWHERE)
        self.warps["index"] = np.arange(count)
        self.addresses = [self.warp_memory.ctypes.data + number * size for number in range(count)]

    def execute(self, limit: int) -> Launch:
        self.left = limit
        self.limit = limit
        for number, (z, y, x) in enumerate(itertools.product(*(range(n) for n in reversed(self.grid)))):
            self._begin_block(number, (x, y, z))
            self._run_block()
        self.memory.time = int(self.record["time"][0]) + 1
        return self._result()

    def _begin_block(self, number: int, ctaid: Dim) -> None:
        record = self.record[0]
        record["time"] += 1
        record["ctaid"] = ctaid
        record["block_number"], record["block_began"], record["acquired"] = number, record["time"], 0
        self.began[number] = record["time"]
        self.known[:] = 0
        np.fill_diagonal(self.known, record["time"])
        self.shared_state[:] = UNWRITTEN
        self.local_state[:] = UNWRITTEN
        self.warps["pcs"] = self.start
        self.warps["live"] = self.live
        self.warps["status"] = Status.READY

    def _run_block(self) -> None:
        run, launch = self.program.run, self.record.ctypes.data
        status = [Status.READY] * len(self.warps)
        while True:
            for number, address in enumerate(self.addresses):
                if status[number] in (Status.READY, Status.PREEMPTED):
                    status[number] = self._advance(run, launch, number, address)
            if Status.PREEMPTED in status or Status.READY in status:
                continue
            if all(s == Status.EXITED for s in status):
                return
            self._release_barrier(status)

    def _advance(self, run: ctypes._NamedFuncPointer, launch: int, number: int, address: int) -> Status:
        """Run one warp until it stops, waits or has used up its slice."""
        given = min(SLICE, self.left)
        self.record["budget"] = given
        status = Status(run(launch, address))
        self.left -= given - int(self.record["budget"][0])
        if status == Status.FAULT:
            raise self._fault()
        if status == Status.STUCK:
            raise self._stuck(number)
        if status == Status.PREEMPTED and self.left <= 0:
            raise TimedOut(self.name, self.file, self._line_of_block(int(self.warps[number]["pcs"].min())), self.limit)
        if status == Status.ARRIVED:
            return Status.READY
        return status

    def _release_barrier(self, status: list[Status]) -> None:
        waiting = [number for number, s in enumerate(status) if s == Status.BARRIER]
        time = int(self.record["time"][0]) + 1
        self.record["time"] = time
        self.known[np.ix_(waiting, waiting)] = time
        for number in waiting:
            status[number] = Status.READY

    @property
    def file(self) -> str:
        return self.module.parsed.file

    def _line_of_block(self, block: int) -> int:
        return self.lowered.blocks[block][0][0] if block < len(self.lowered.blocks) else 0

    def _fault(self) -> Fault:
        record = self.record[0]
        kind = FAULT_KINDS[int(record["fault_kind"])]
        site = int(record["fault_site"])
        line = self.lowered.sites[site].line if site >= 0 else -site - 1
        address = int(record["fault_address"])
        block = tuple(int(n) for n in record["ctaid"])
        return Fault(kind, f"{site} {address}", self.name, self.file, line, block, (0, 0, 0), address)

    def _stuck(self, number: int) -> Fault:
        block = int(self.record["fault_block"][0])
        return Fault(FaultKind.BAD_MASK, "stuck", self.name, self.file, self._line_of_block(block), (0, 0, 0), (0, 0, 0))

    def _result(self) -> Launch:
        lines: dict[int, LineCounters] = {}
        for block, (runs, lanes, divergent) in zip(self.lowered.blocks, self.block_counts.tolist(), strict=True):
            for line, name in block:
                counters = lines.setdefault(line, LineCounters())
                counters.warp_instructions += runs
                counters.active_lanes += lanes
                kind = name.split(".")[0]
                counters.instructions[kind] = counters.instructions.get(kind, 0) + lanes
            if block[-1][1].startswith("bra"):
                lines[block[-1][0]].branches += runs
                lines[block[-1][0]].divergent_branches += divergent
        for site, counts in zip(self.lowered.sites, self.counts.tolist(), strict=False):
            _add_site(lines.setdefault(site.line, LineCounters()), site.space, site.access, site.bytes, counts)
        totals = LineCounters()
        for counters in lines.values():
            totals.add(counters)
        written = {shadow.buffer.name: shadow.state == WRITTEN for shadow in self.shadows}
        return Launch(
            self.name, self.file, dict(sorted(lines.items())), totals, totals.active_lanes, "".join(self.printed), written
        )


def _add_site(line: LineCounters, space: Space, access: Access, size: int, counts: tuple[int, ...]) -> None:
    requests, lanes, sectors, wavefronts, least = counts
    direction = "load" if access == Access.LOAD else "store"
    where = "shared" if wavefronts else "global" if sectors else ""
    if not where:
        return
    added = {"requests": requests, "bytes": lanes * size}
    added |= {"sectors": sectors} if sectors else {"wavefronts": wavefronts, "least_wavefronts": least}
    for name, amount in added.items():
        field_name = f"{where}_{direction}_{name}"
        setattr(line, field_name, getattr(line, field_name) + amount)


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes that begin at a multiple of 256."""
    memory = np.zeros(size + 256 + 64, np.uint8)
    return memory[-memory.ctypes.data % 256 :]


def _strided(record: np.dtype[np.void], size: int) -> np.dtype[np.void]:
    """The record padded to ``size`` bytes."""
    fields = record.fields
    assert fields is not None
    names = list(fields)
    return np.dtype(
        {
            "names": names,
            "formats": [fields[name][0] for name in names],
            "offsets": [field_offset(record, name) for name in names],
            "itemsize": size,
        }
    )


def _granule(lowered: Lowered, spaces: tuple[Space, ...]) -> int:
    """log2 of the smallest access in bytes to any of the spaces."""
    sizes = [site.bytes // site.parts for site in lowered.sites if site.space in spaces]
    return min(sizes, default=4).bit_length() - 1


_ = (Iterator, field)
