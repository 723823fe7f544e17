"""One launch in memory: its records, global memory, the resident thread blocks, and what they hold at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from warpcheck.counters import AccessSample
from warpcheck.errors import Fault
from warpcheck.events import EVENTS, recording
from warpcheck.layout import LANES, RESERVED, SCRATCH, Space
from warpcheck.lowered import Lowered, Site
from warpcheck.ptx import Module
from warpcheck.runtime import complaints
from warpcheck.runtime.arrays import FAR, Dim, Records, aligned
from warpcheck.runtime.boxes import BULK
from warpcheck.runtime.buffers import ARGUMENTS, Buffer, Memory, disjoint, table
from warpcheck.runtime.bulk import BULKS
from warpcheck.runtime.cta import cluster_of
from warpcheck.runtime.history import ENTRY, LOW, SITE, THREAD
from warpcheck.runtime.order import place_at
from warpcheck.runtime.recorder import EVENT
from warpcheck.runtime.records import ACCESS_COUNTS, COUNTED, COUNTS, LAUNCH, SAMPLE
from warpcheck.runtime.registers import registers_at_launch
from warpcheck.runtime.residents import Residents
from warpcheck.runtime.symbols import shared_variable, source_name
from warpcheck.runtime.transactions import CHUNK

__all__ = ["Author", "Grid", "place_statics"]

WORKSPACE = 8  # bytes of the barrier of a grid, as its header has it: their number, and the arrivals
HEAP = 8 << 20  # bytes that kernels may ask for, unless cudaDeviceSetLimit says otherwise


@dataclass(frozen=True)
class Author:
    """Who made an access: thread and block as messages name them, the block's number in the grid, the instruction."""

    thread: str
    block: str
    block_number: int
    site: Site


class Grid(Records):
    """A grid of thread blocks, with those that are ``residents``. ``shared`` counts dynamic bytes of each block.

    ``memory`` keeps what is known of the buffers from launch to launch; ``statics`` holds the variables of the module.
    ``blocks`` are the numbers of those that run, in this order, where they are a sample. ``room`` is how many fit on
    the GPU at once; those of a ``cooperative`` grid are all resident. ``cluster`` are the blocks of a cluster along
    each axis, None where nobody asks for clusters.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        lowered: Lowered,
        grid: Dim,
        block: Dim,
        shared: int,
        arguments: bytes,
        buffers: Sequence[Buffer],
        statics: dict[str, npt.NDArray[np.uint8]],
        memory: Memory,
        reverse: int = 0,
        blocks: Sequence[int] | None = None,
        room: int = 1,
        cooperative: bool = False,
        cluster: Dim | None = None,
    ) -> None:
        super().__init__(LAUNCH)
        self.module, self.name, self.lowered, self.memory = module, name, lowered, memory
        self.grid, self.block, self.cluster = grid, block, cluster or (1, 1, 1)
        size = math.prod(self.cluster)
        self.blocks = blocks if blocks is None else self._of_whole_clusters(blocks)
        self.printed: list[str] = []
        self.warnings: set[str] = set()
        self.heap: dict[int, npt.NDArray[np.uint8]] = {}
        self.counts = np.zeros(len(lowered.sites) + 1, COUNTS)
        self.samples = np.zeros(len(lowered.sites) + 1, SAMPLE)
        self._set_served()
        self.block_counts = np.zeros((len(lowered.blocks), 3), np.int64)
        params = aligned(max(len(arguments), 16))[: max(len(arguments), 16)]
        params[: len(arguments)] = np.frombuffer(arguments, np.uint8)
        self.set(param_bytes=len(arguments))
        self.point(params=params, blocks=self.block_counts, counts=self.counts, samples=self.samples)
        if any(check.function == "issue_bulk" for check in lowered.checks):
            self.point(bulk=np.zeros(BULKS, BULK))
        if recording.get():
            self.point(events=np.zeros(EVENTS, EVENT))
        self._set_extents(shared)
        self.set(reverse=reverse, cooperative=cooperative, cluster_size=size, explicit=cluster is not None)
        self.set(registers=registers_at_launch(module.functions[name].directives.maxnreg, block))
        self._place_globals(buffers, statics)
        extents = self.get("shared_bytes"), self.get("shared_granule")
        self.residents = Residents(self, lambda: cluster_of(size, lowered, block, *extents), room, cooperative)

    def _set_extents(self, dynamic: int) -> None:
        threads, blocks = (x * y * z for x, y, z in (self.block, self.grid))
        if self.blocks is not None:
            blocks = len(self.blocks)
            self.point(places=np.array(self.blocks, np.int64))
        for axis, extent, count, beside in zip("xyz", self.block, self.grid, self.cluster, strict=True):
            self.set(**{f"ntid_{axis}": extent, f"nctaid_{axis}": count, f"cluster_{axis}": beside})
        reserved = self.lowered.shared.get(RESERVED, range(0))
        self.set(
            block_count=blocks,
            reserved=reserved.start,
            reserved_bytes=len(reserved),
            scratch=SCRATCH in self.lowered.shared and self.module.file.endswith(".py"),
            converges=self.module.of_triton,
            dynamic_bytes=dynamic,
            shared_bytes=self.lowered.shared_bytes + dynamic,
            shared_granule=self._granule(Space.SHARED),
            local_bytes=self.lowered.local_bytes,
            local_total=self.lowered.local_bytes * threads,
            launch_began=self.memory.time,
            time=self.memory.time,
        )
        self.point(published=np.zeros(blocks, np.int64))

    def _set_served(self) -> None:
        """Tell how the hardware serves each site; those that it serves together, where it keeps what it has fetched."""
        self.counts["way"][: len(self.lowered.sites)] = [site.served.way for site in self.lowered.sites]
        self.counts["copies"][: len(self.lowered.sites)] = [site.is_copy for site in self.lowered.sites]
        served = {number: site.served for number, site in enumerate(self.lowered.sites) if site.served.group}
        groups = {one.group: one.chunks for one in served.values()}
        starts = dict(zip(groups, accumulate(groups.values(), initial=0), strict=False))
        self.chunks = np.full(sum(groups.values()), -1, CHUNK)
        for number, one in served.items():
            row = self.counts[number]
            row["width"], row["chunk_mask"] = one.bytes, one.chunks - 1
            row["chunks"] = self.chunks.ctypes.data + CHUNK.itemsize * starts[one.group]

    def _granule(self, space: Space) -> int:
        """log2 of the least access in bytes to a space: the finest that two threads can share without touching."""
        spaces = (space, Space.GENERIC, Space.CLUSTER)
        sites = (site for site in self.lowered.sites if site.space in spaces)
        return min((site.bytes // site.parts for site in sites), default=4).bit_length() - 1

    def _place_globals(self, buffers: Sequence[Buffer], statics: dict[str, npt.NDArray[np.uint8]]) -> None:
        params = self.arrays["params"]
        own = [Buffer(ARGUMENTS, params.ctypes.data, params.nbytes, 1, dtype="bytes")]
        own += [
            Buffer(name, storage.ctypes.data, self.module.variables[name].size, 1, dtype="bytes")
            for name, storage in statics.items()
        ]
        if self.get("cooperative"):
            self.point(workspace=aligned(WORKSPACE))
            own.append(Buffer("the barrier of the grid", self.get("workspace"), WORKSPACE, 1, dtype="bytes"))
        granule = self._granule(Space.GLOBAL)
        self.shadows = [self.memory.shadow(buffer, granule) for buffer in disjoint([*buffers, *own])]
        self._set_buffers()
        symbols = [statics[name].ctypes.data for name in self.lowered.symbols]
        self.point(symbols=np.array([*symbols, 0], np.int64))

    def _set_buffers(self) -> None:
        rows = table(self.shadows)
        if self.blocks is not None:  # the others have been looked at in full launches
            rows["history"][rows["bytes"] < FAR] = 0
        self.point(buffers=rows)
        self.set(buffer_count=len(rows))

    def allocate(self, nbytes: int) -> int:
        """Memory for a kernel that asks for some: its address, or 0 where the heap is full."""
        if not 0 < nbytes <= HEAP - sum(memory.size for memory in self.heap.values()):
            return 0
        memory = aligned(nbytes)[:nbytes]
        address = int(memory.ctypes.data)
        self.heap[address] = memory
        buffer = Buffer("memory from malloc", address, nbytes, 1, initialised=False, dtype="bytes")
        self.shadows.append(self.memory.shadow(buffer, self._granule(Space.GLOBAL)))
        self.shadows.sort(key=lambda shadow: shadow.buffer.address)
        self._set_buffers()
        return address

    def free(self, address: int) -> None:
        """Give memory of the heap back; an address that is none of it changes nothing."""
        if self.heap.pop(address, None) is not None:
            self.memory.forget(address, 1)
            self.shadows = [shadow for shadow in self.shadows if shadow.buffer.address != address]
            self._set_buffers()

    def warn(self, fault: Fault) -> None:
        """Tell once, with what the kernel prints, of what works on a GPU and is not promised to."""
        text = f"{fault.file}({fault.line}): warning: {fault.message}\n"
        if text not in self.warnings:
            self.warnings.add(text)
            self.printed.append(text)

    # What it did

    @property
    def counted(self) -> npt.NDArray[np.int64]:
        """The counters of each site: a row of COUNTED."""
        return self.counts.view(np.int64).reshape(len(self.counts), -1)[:, : len(COUNTED)]

    def state_of(self, buffer: Buffer) -> npt.NDArray[np.uint8]:
        """The states of a buffer's bytes; see ``layout``."""
        for shadow in self.shadows:
            start = buffer.address - shadow.buffer.address
            if start >= 0 and start + buffer.nbytes <= shadow.buffer.nbytes:
                return shadow.state[start : start + buffer.nbytes]
        raise KeyError(buffer.name)

    def accesses(self) -> list[AccessSample]:
        """One request of every instruction that touched global or shared memory; not of the barrier of the grid."""
        found = []
        for site, counts, sample in zip(self.lowered.sites, self.counts, self.samples, strict=False):
            sectors, wavefronts, bulk = (int(counts[name]) for name in ("sectors", "wavefronts", "bulk_sectors"))
            if not counts["requests"] or not (sectors or wavefronts or bulk):
                continue
            lanes = [lane for lane in range(LANES) if int(sample["mask"]) >> lane & 1]
            addresses = {lane: int(sample["addresses"][lane]) for lane in lanes}
            shared = bool(wavefronts)
            base, name = self._window_of(addresses[lanes[0]], shared)
            if base == self.get("workspace"):
                continue
            offsets = {lane: address - base for lane, address in addresses.items()}
            place = site.line, site.text, shared, name, site.access, site.width, offsets
            told = list(counts.tolist()[:ACCESS_COUNTS])
            if bulk:  # a box is one request, of as many lanes as ask for its bytes
                told[1:3] = int(counts["bulk_bytes"]) // site.bytes, bulk
            found.append(AccessSample(*place, *told))
        return found

    def _window_of(self, address: int, shared: bool) -> tuple[int, str]:
        """Where the tensor, or the shared memory, that an address lies in begins, and the variable's name."""
        if shared:
            base = max(start for cta in self.residents.all if (start := cta.get("shared")) <= address)
            return base, source_name(shared_variable(address - base, self.lowered.shared)[1])
        begun = [shadow.buffer for shadow in self.shadows if shadow.buffer.address <= address]
        return (begun[-1].address, begun[-1].name) if begun else (0, "?")

    def author(self, trace: int, time: int) -> Author:
        """Who made an access that the history holds."""
        turn = int(np.searchsorted(self.arrays["turns"][: self.get("turn_count")], time, side="right")) - 1
        number = int(self.arrays["turn_blocks"][turn])
        place = place_at(number, self.get("block_count"), self.get("cluster_size"), self.get("reverse"))
        block = self._block_at(place if self.blocks is None else self.blocks[number])
        thread = self.residents.cta.thread(*divmod(trace & THREAD, LANES))
        site = self.lowered.sites[(trace >> SITE) - 1]
        return Author(complaints.coordinates(thread, self.block), self.named(block), number, site)

    def named(self, block: Dim) -> str:
        """A block as messages name it: by its coordinates, or those of the program that a cluster is in Triton."""
        wide = self.cluster[0] if self.module.of_triton else 1
        return complaints.coordinates((block[0] // wide, *block[1:]), (self.grid[0] // wide, *self.grid[1:]))

    def _block_at(self, place: int) -> Dim:
        """The coordinates of a block, by its place: those of a cluster lie together."""
        cluster, rank = divmod(place, math.prod(self.cluster))
        columns, rows = (count // beside for count, beside in zip(self.grid[:2], self.cluster, strict=False))
        first = cluster % columns, cluster // columns % rows, cluster // (columns * rows)
        wide, high, _ = self.cluster
        inside = rank % wide, rank // wide % high, rank // (wide * high)
        x, y, z = (a * n + b for a, n, b in zip(first, self.cluster, inside, strict=True))
        return x, y, z

    def _of_whole_clusters(self, blocks: Sequence[int]) -> list[int]:
        """The places of a sample's blocks, by their numbers with x fastest, and of those in the same clusters."""
        (columns, rows, _), (wide, high, deep) = self.grid, self.cluster
        size, found = wide * high * deep, dict[int, None]()
        for number in blocks:
            x, y, z = number % columns // wide, number // columns % rows // high, number // (columns * rows) // deep
            first = ((z * (rows // high) + y) * (columns // wide) + x) * size
            found |= dict.fromkeys(range(first, first + size))
        return list(found)

    def writer(self, address: int) -> Author | None:
        """Who wrote last to an address of global memory; None where this launch did not."""
        for shadow in self.shadows:
            offset = address - shadow.buffer.address
            if 0 <= offset < shadow.buffer.nbytes:
                entry = (offset >> shadow.granule) * ENTRY
                write = int(shadow.history[entry : entry + 8].view(np.int64)[0])
                wrote = write and write >> 32 >= self.get("launch_began")
                return self.author(write & LOW, write >> 32) if wrote else None
        return None


def place_statics(
    module: Module, allocate: Callable[[int], npt.NDArray[np.uint8]] = aligned
) -> dict[str, npt.NDArray[np.uint8]]:
    """Memory for the module's variables, with the values that they begin with. allocate: at a multiple of 256.

    They lie in one piece with a gap behind each, so that no access past the end of one meets another.
    """
    variables = {name: v for name, v in module.variables.items() if v.space in ("global", "const") and v.size}
    rooms = [-(-variable.size // 256) * 256 + 256 for variable in variables.values()]
    memory = allocate(sum(rooms)) if rooms else aligned(0)
    starts = accumulate(rooms, initial=0)
    statics = {name: memory[at : at + variables[name].size] for name, at in zip(variables, starts, strict=False)}
    for name, variable in variables.items():
        initial = variable.initial or b""
        statics[name][: len(initial)] = np.frombuffer(initial, np.uint8)
        for offset, target in variable.pointers:
            start = module.code_address(target) if target in module.functions else statics[target].ctypes.data
            address = np.array([start], np.int64)
            statics[name][offset : offset + 8] = address.view(np.uint8)
    return statics
