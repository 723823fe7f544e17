"""One launch: its records, global memory, the resident thread blocks, and its counters at the end."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from warpcheck.counters import AccessSample
from warpcheck.errors import Fault
from warpcheck.events import EVENTS, recording
from warpcheck.layout import RESERVED, SCRATCH, Access, Space
from warpcheck.lowered_kernel import AccessSite, Lowered, parameter_offsets
from warpcheck.ptx import Module
from warpcheck.runtime import fault_messages
from warpcheck.runtime.access_history import BLOCK_STRONG, ENTRY_BYTES, id_of, is_strong, site_of, thread_of, time_of
from warpcheck.runtime.arrays import FAR, Dim, Place, RecordLayout, Records, address_of, aligned
from warpcheck.runtime.boxes import BULK
from warpcheck.runtime.buffers import (
    ARGUMENTS,
    MAX_OVERLAPPED,
    Buffer,
    Memory,
    Shadow,
    SmallHistory,
    buffer_table,
    merge_overlapping,
)
from warpcheck.runtime.bulk import BULKS
from warpcheck.runtime.cta import CtaLayout, cluster_of, thread_coordinates
from warpcheck.runtime.event_recorder import EVENT
from warpcheck.runtime.memory_transactions import CHUNK
from warpcheck.runtime.records import ACCESS_COUNTS, COUNTS, LAUNCH, SAMPLE, WARP, field_offset
from warpcheck.runtime.resident_blocks import Residents, max_turns
from warpcheck.runtime.schedule_order import scheduled_block
from warpcheck.runtime.setmaxnreg import registers_at_launch
from warpcheck.runtime.symbols import find_shared_variable, source_name
from warpcheck.runtime.tensor_jobs import SCRATCH_BYTES

__all__ = ["NEVER", "AccessOrigin", "Configuration", "Grid", "place_statics"]

GRID_BARRIER = "the barrier of the grid"
WORKSPACE = 8  # bytes of the barrier of a grid, as its header has it: their number, and the arrivals
PAUSE_CLOCK = 1 << 17  # lane-instructions after which a launch pauses: several cores may run the remaining blocks
NEVER = (1 << 63) - 1  # a clock that no launch reaches
HEAP = 8 << 20  # bytes that kernels may ask for, unless cudaDeviceSetLimit says otherwise


@dataclass(frozen=True)
class AccessOrigin:
    """The origin of an access: thread and block as messages name them, the block's number in the grid, the
    instruction, and the kernel if the access is of an earlier launch.
    """

    thread: str
    block: str
    block_number: int
    site: AccessSite
    kernel: str = ""


@dataclass(frozen=True)
class Configuration:
    """A kernel with the configuration of a launch, and what all launches in this configuration have in common.

    Attributes:
        grid: The blocks along each axis.
        block: The threads of a block along each axis.
        cluster: The blocks of a cluster along each axis; None if neither launch nor kernel asks for clusters.
        shared: Dynamic shared memory of each block in bytes.
        room: How many blocks fit on the GPU at once.
        cooperative: Whether all blocks are resident at once.
    """

    module: Module
    name: str
    lowered: Lowered
    grid: Dim
    block: Dim
    cluster: Dim | None = None
    shared: int = 0
    room: int = 1
    cooperative: bool = False

    @cached_property
    def cluster_size(self) -> int:
        """The blocks of a cluster."""
        return math.prod(self.cluster or (1, 1, 1))

    @cached_property
    def layout(self) -> RecordLayout:
        """The layout of the records of a launch of all blocks."""
        return self.layout_of_blocks(math.prod(self.grid))

    @cached_property
    def cta_layout(self) -> CtaLayout:
        """The layout of the records of a block."""
        return CtaLayout(self.lowered, self.block, self.lowered.shared_bytes + self.shared, self.cluster_size)

    def layout_of_blocks(self, count: int) -> RecordLayout:
        """Return the layout of the records of a launch of so many blocks of the grid."""
        lowered = self.lowered
        site_rows = len(lowered.sites) + 1
        param_bytes = max(self.param_bytes, 16)
        turns = 2 * max_turns(count)
        arrays: dict[str, tuple[Any, ...]] = {
            "params": (np.uint8, param_bytes),
            "params_state": (np.uint8, param_bytes),
            "params_history": self.params_history.shape,
            "blocks": (np.int64, len(lowered.blocks), 3),
            "counts": (COUNTS, site_rows),
            "samples": (SAMPLE, site_rows),
            "symbols": (np.int64, len(lowered.symbols) + 1),
            "published_at": (np.int64, count),
            "first_published_at": (np.int64, count),
            "acquired_at_exit": (np.int64, count),
            "turns": (np.int64, turns),
            "turn_blocks": (np.int64, turns),
            "chunks": (CHUNK, self.chunk_count),
        }
        if "issue_bulk" in lowered.functions_checked:
            arrays["bulk"] = (BULK, BULKS)
        if not lowered.functions_checked.isdisjoint(("tensor_multiply", "tensor_copy")):
            arrays["tensor_scratch"] = (np.uint8, SCRATCH_BYTES)
        if self.cooperative:
            # A grid synchronizes through memory that the driver provides on a GPU (cooperative_groups' grid_group).
            arrays["workspace"] = (np.uint8, WORKSPACE)
        return RecordLayout(
            LAUNCH,
            arrays,
            {**self._fields, "block_count": count, "block_stop": count},
            contents={"counts": self._counts, "samples": self._samples},
            links=self.params_history.links | self._chunk_links,
        )

    @cached_property
    def param_bytes(self) -> int:
        """The bytes of the parameters."""
        offsets = parameter_offsets(self.module.functions[self.name])
        return max((offset + parameter.size for parameter, offset in offsets), default=0)

    @cached_property
    def params_history(self) -> SmallHistory:
        """The history of the parameters."""
        granules = -(-max(self.param_bytes, 16) >> self.lowered.granules[Space.GLOBAL]) + 1
        return SmallHistory("params_history", granules)

    @property
    def _fields(self) -> dict[str, int]:
        """The fields of a launch's record that the configuration determines."""
        lowered = self.lowered
        extents = zip("xyz", self.block, self.grid, self.cluster or (1, 1, 1), strict=True)
        fields: dict[str, int] = {}
        for axis, block_extent, grid_extent, cluster_extent in extents:
            fields |= {f"ntid_{axis}": block_extent, f"nctaid_{axis}": grid_extent, f"cluster_{axis}": cluster_extent}
        reserved = lowered.shared.get(RESERVED, range(0))
        # A source in Python is for Triton or the CuTe DSL. Their compilers own this scratch memory, and they leave
        # tcgen05 fences out (see docs/blackwell.md).
        is_python = self.module.file.endswith(".py")
        return fields | {
            "shared_fill": -1,
            "param_bytes": self.param_bytes,
            "chunk_count": self.chunk_count,
            "reserved": reserved.start,
            "reserved_bytes": len(reserved),
            "compiler_scratch": SCRATCH in lowered.shared and is_python,
            "converges": self.module.of_triton,
            "requires_tensor_fences": not is_python,
            "dynamic_bytes": self.shared,
            "shared_bytes": lowered.shared_bytes + self.shared,
            "cleared_bytes": (lowered.warp_bytes - WARP.itemsize) * lowered.clears_registers,
            "shared_granule": lowered.granules[Space.SHARED],
            "local_bytes": lowered.local_bytes,
            "local_total": lowered.local_bytes * math.prod(self.block),
            "cooperative": self.cooperative,
            "cluster_size": self.cluster_size,
            "explicit_cluster": self.cluster is not None,
            "registers": registers_at_launch(self.module.functions[self.name].directives.maxnreg, self.block),
        }

    @cached_property
    def chunk_count(self) -> int:
        """How many pieces of memory the sites that the hardware merges have in registers at once."""
        return sum(self._chunks_of_groups.values())

    @cached_property
    def _chunks_of_groups(self) -> dict[int, int]:
        """The number of chunks of each group of sites that the hardware merges, in the order of their memory."""
        return {access.group: access.chunks for access in self.lowered.merged_sites.values()}

    @cached_property
    def generic_sites(self) -> npt.NDArray[np.bool_]:
        """Which sites have generic addresses: a row for each, as in the counters."""
        return np.array([*(site.space == Space.GENERIC for site in self.lowered.sites), False])

    @cached_property
    def device_scoped_sites(self) -> npt.NDArray[np.bool_]:
        """Which sites order nothing for other ranks, because their scope is not the system: a row for each, as above.

        PTX ISA, "Scope": .gpu is the set of all threads on the same device. Volatile accesses have the scope of the
        system.
        """
        is_scoped = (
            (site.access == Access.ATOMIC or is_strong(site.strong)) and "sys" not in site.words
            for site in self.lowered.sites
        )
        return np.array([*is_scoped, False])

    @property
    def _counts(self) -> npt.NDArray[np.void]:
        """The counters of the sites before a launch, with how the hardware executes each site."""
        counts = np.zeros(len(self.lowered.sites) + 1, COUNTS)
        counts["atomic_strategy"][:-1] = self.lowered.strategies
        counts["is_cp_async"][:-1] = self.lowered.copy_flags
        for number, access in self.lowered.merged_sites.items():
            counts[number]["width"] = access.bytes
            counts[number]["chunk_mask"] = access.chunks - 1
        return counts

    @property
    def _chunk_links(self) -> dict[Place, Place]:
        """For each merged site, the place of the address of its chunks, and the place of the chunks."""
        chunks = self._chunks_of_groups
        starts = dict(zip(chunks, accumulate(chunks.values(), initial=0), strict=False))
        return {
            Place("counts", COUNTS.itemsize * number + field_offset(COUNTS, "chunks")): Place(
                "chunks", CHUNK.itemsize * starts[access.group]
            )
            for number, access in self.lowered.merged_sites.items()
        }

    @property
    def _samples(self) -> npt.NDArray[np.void]:
        """The samples of the sites before a launch, with which of them have the scope of the block."""
        samples = np.zeros(len(self.lowered.sites) + 1, SAMPLE)
        samples["has_block_scope"][:-1] = [site.strong == BLOCK_STRONG for site in self.lowered.sites]
        return samples


class Grid(Records):
    """A grid of thread blocks, and those of them that are resident at once.

    Args:
        arguments: The bytes of the kernel's parameters.
        statics: The variables of the module.
        memory: Keeps the shadow memory of the buffers from launch to launch.
        blocks: The numbers of the blocks that run, in this order, if they are a sample.
        programmatic_stream_serialization: Whether the launch may overlap those before it; see ``happens_before``.
        shared_fill: The byte that shared memory is filled with at the start of a block, and counts as written. None:
            it is unwritten.
    """

    def __init__(
        self,
        configuration: Configuration,
        arguments: bytes,
        buffers: Sequence[Buffer],
        statics: dict[str, npt.NDArray[np.uint8]],
        memory: Memory,
        reverse: int = 0,
        blocks: Sequence[int] | None = None,
        shared_fill: int | None = None,
        programmatic_stream_serialization: bool = False,
    ) -> None:
        self.configuration = configuration
        self.module = configuration.module
        self.name = configuration.name
        self.lowered = configuration.lowered
        self.grid = configuration.grid
        self.block = configuration.block
        self.cluster = configuration.cluster or (1, 1, 1)
        self.blocks = blocks if blocks is None else self._extend_to_clusters(blocks)
        super().__init__(
            configuration.layout if self.blocks is None else configuration.layout_of_blocks(len(self.blocks))
        )
        # The caller owns the memory, and the memory keeps the last launch: a cycle would outlive both.
        self.memory = weakref.proxy(memory)
        self.printed: list[str] = []
        self.warnings: set[str] = set()
        self.heap: dict[int, npt.NDArray[np.uint8]] = {}
        self.counts = self.array("counts")
        self.block_counts = self.array("blocks")
        if arguments:
            self.array("params")[: len(arguments)] = np.frombuffer(arguments, np.uint8)
        if recording.get():
            self.point(events=np.zeros(EVENTS, EVENT))
        # A sample of blocks looks for no races.
        overlaps = programmatic_stream_serialization and blocks is None and memory.last_launch is not None
        self.overlapped: tuple[Grid, ...] = memory.last_launch.may_run_during_next() if overlaps else ()
        self.set(
            reverse=reverse,
            pause_clock=PAUSE_CLOCK,
            launch_began=memory.time,
            time=memory.time,
            overlap_began=self.overlapped[0].get("launch_began") if self.overlapped else memory.time,
        )
        if self.overlapped:
            self.set(unawaited_end=self.overlapped[-1].end_of_unawaited())
        if shared_fill is not None:
            self.set(shared_fill=shared_fill)
        if self.blocks is not None:
            self.point(sampled_blocks=np.array(self.blocks, np.int64))
        self._place_globals(buffers, statics)
        self.residents = Residents(
            self, partial(cluster_of, configuration.cta_layout), configuration.room, configuration.cooperative
        )

    def _place_globals(self, buffers: Sequence[Buffer], statics: dict[str, npt.NDArray[np.uint8]]) -> None:
        own_buffers = [
            Buffer(name, address_of(storage), self.module.variables[name].size, 1, dtype="bytes")
            for name, storage in statics.items()
        ]
        if self.configuration.cooperative:
            own_buffers.append(Buffer(GRID_BARRIER, self.get("workspace"), WORKSPACE, 1, dtype="bytes"))
        granule = self.lowered.granules[Space.GLOBAL]
        self.shadows = [self._shadow_of_arguments(granule)]
        for buffer in merge_overlapping([*buffers, *own_buffers]):
            # The workspace is of this launch alone.
            is_workspace = buffer.name == GRID_BARRIER and GRID_BARRIER not in statics
            inherits = self.overlapped and not is_workspace and buffer.nbytes < FAR
            find_shadow = self.memory.inheriting_shadow if inherits else self.memory.shadow
            self.shadows.append(find_shadow(buffer, granule))
        self._sort_buffers()
        constants = [storage for name, storage in statics.items() if self.module.variables[name].space == "const"]
        if constants:
            began = address_of(constants[0])
            self.set(const_began=began, const_bytes=address_of(constants[-1]) + constants[-1].nbytes - began)
        if self.lowered.symbols:
            self.array("symbols")[:-1] = [address_of(statics[name]) for name in self.lowered.symbols]

    def _shadow_of_arguments(self, granule: int) -> Shadow:
        buffer = Buffer(ARGUMENTS, self.get("params"), self.array("params").nbytes, 1, dtype="bytes")
        history, replaced = self.configuration.params_history.of(self)
        return Shadow(buffer, self.array("params_state"), history, granule, replaced)

    def _sort_buffers(self) -> None:
        # The native functions find a buffer by binary search (address_spaces.find_buffer).
        self.shadows.sort(key=lambda shadow: shadow.buffer.address)
        self._set_buffers()

    def _set_buffers(self) -> None:
        # A sample's races are not looked for in small buffers: their blocks ran in full launches before.
        self.point(buffers=buffer_table(self.shadows, min_checked_bytes=0 if self.blocks is None else FAR))
        self.set(buffer_count=len(self.shadows) + 1)

    def allocate(self, nbytes: int) -> int:
        """Allocate memory for a kernel: return its address, or 0 if the heap is full."""
        if not 0 < nbytes <= HEAP - sum(memory.size for memory in self.heap.values()):
            return 0
        memory = aligned(nbytes)[:nbytes]
        address = address_of(memory)
        self.heap[address] = memory
        buffer = Buffer("memory from malloc", address, nbytes, 1, initialised=False, dtype="bytes")
        self.shadows.append(self.memory.shadow(buffer, self.lowered.granules[Space.GLOBAL]))
        self._sort_buffers()
        return address

    def free(self, address: int) -> None:
        """Free memory of the heap; any other address changes nothing."""
        if self.heap.pop(address, None) is not None:
            self.memory.forget(address, 1)
            self.shadows = [shadow for shadow in self.shadows if shadow.buffer.address != address]
            self._set_buffers()

    def warn(self, fault: Fault) -> None:
        """Print once, with the kernel's output, what works on a GPU without being promised to."""
        text = f"{fault.file}({fault.line}): warning: {fault.message}\n"
        if text not in self.warnings:
            self.warnings.add(text)
            self.printed.append(text)

    # What it did

    def may_run_during_next(self) -> tuple[Grid, ...]:
        """Return the launches that may still run when a launch with programmatic stream serialization begins next."""
        # That launch begins when all blocks of this one have triggered it or have exited. If a block has waited before,
        # the launches that it waited for have ended.
        return (self,) if self.get("waits_before_trigger") else (*self.overlapped, self)[-MAX_OVERLAPPED:]

    def end_of_unawaited(self) -> int:
        """Return the time up to which a launch that waits for this one is not ordered behind earlier launches."""
        # This launch may end while those that it overlaps still run, unless a thread of it waits for them.
        has_left_any = self.overlapped and not self.get("grids_awaited")
        return self.get("launch_began") if has_left_any else self.get("unawaited_end")

    def share_before_wait(self) -> float:
        """Return the share of its sectors of global memory before griddepcontrol.wait; 1 if it overlaps no launch."""
        if not self.overlapped:
            return 1.0
        sectors = int((self.counts["sectors"] + self.counts["bulk_sectors"]).sum())
        return self.get("sectors_before_wait") / sectors if sectors else 1.0

    def state_of(self, buffer: Buffer) -> npt.NDArray[np.uint8]:
        """Return the states of a buffer's bytes; see ``layout``."""
        for shadow in self.shadows:
            start = buffer.address - shadow.buffer.address
            if start >= 0 and start + buffer.nbytes <= shadow.buffer.nbytes:
                return shadow.state[start : start + buffer.nbytes]
        raise KeyError(buffer.name)

    def accesses(self) -> Callable[[], list[AccessSample]]:
        """Return a function that returns one request of every instruction that touched global or shared memory, except
        the barrier of the grid.

        Most callers of a launch need no samples. The function may be called at any later time, when the records of the
        blocks are gone and the buffers have the names of another launch.
        """
        windows = [(shadow.buffer.address, shadow.buffer.name) for shadow in self.shadows]
        extent = self.get("shared_bytes")
        shared = [range(start, start + extent) for start in (cta.get("shared") for cta in self.residents.all_ctas)]
        return partial(self._collect_accesses, windows, shared)

    def _collect_accesses(self, windows: list[tuple[int, str]], shared_windows: list[range]) -> list[AccessSample]:
        def shared_base(address: int) -> int:
            """Return the start of the shared memory that holds an address; 0 if none does."""
            return next((window.start for window in shared_windows if address in window), 0)

        samples = []
        for site, counts, sample in zip(self.lowered.sites, self.counts, self.array("samples"), strict=False):
            sectors, wavefronts, bulk = (int(counts[name]) for name in ("sectors", "wavefronts", "bulk_sectors"))
            if not counts["requests"] or not (sectors or wavefronts or bulk):
                continue
            mask = int(sample["mask"])
            addresses = {lane: address for lane, address in enumerate(sample["addresses"].tolist()) if mask >> lane & 1}
            shared = bool(wavefronts)
            if shared and site.space == Space.GENERIC:
                # One lane may access shared memory, and the next one global or local memory.
                in_shared = {lane: address for lane, address in addresses.items() if shared_base(address)}
                shared = bool(in_shared or not sectors)
                addresses = in_shared or addresses
            first = next(iter(addresses.values()))
            if shared:
                base = shared_base(first)
                name = source_name(find_shared_variable(first - base, self.lowered.shared)[1])
            else:
                base, name = next((window for window in reversed(windows) if window[0] <= first), (0, "?"))
            if base == self.get("workspace"):
                continue
            offsets = {lane: address - base for lane, address in addresses.items()}
            location = site.line, site.text, shared, name, site.access, site.width, offsets
            measured = list(counts.tolist()[:ACCESS_COUNTS])
            if bulk:  # a box is one request, of as many lanes as ask for its bytes
                measured[1:3] = int(counts["bulk_bytes"]) // site.bytes, bulk
            samples.append(AccessSample(*location, *measured))
        return samples

    def origin_of(self, access_id: int, time: int) -> AccessOrigin:
        """Return the origin of an access in the history."""
        if time < self.get("launch_began"):
            earlier = [launch for launch in self.overlapped if launch.get("launch_began") <= time]
            return replace(earlier[-1].origin_of(access_id, time), kernel=source_name(earlier[-1].name))
        block_number = int(self.blocks_at(np.array(time)))
        block = self.coordinates_of(block_number)
        thread = thread_coordinates(self.block, thread_of(access_id))
        site = self.lowered.sites[site_of(access_id)]
        return AccessOrigin(
            fault_messages.format_coordinates(thread, self.block), self.format_block(block), block_number, site
        )

    def blocks_at(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of the block whose turn it was at each time; see happens_before.block_at_time."""
        turn_count = self.get("turn_count")
        turns = np.searchsorted(self.array("turns")[:turn_count], times, side="right") - 1
        blocks: npt.NDArray[np.int64] = self.array("turn_blocks")[:turn_count][np.maximum(turns, 0)]
        return blocks

    def history_entries(self, start: int, end: int) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
        """Yield the entries of the history of [start, end) in each buffer, a row of words each, and log2 of their
        granule; see races.
        """
        for shadow in self.shadows:
            first = max(start - shadow.buffer.address, 0)
            last = min(end - shadow.buffer.address, shadow.buffer.nbytes)
            if first < last:
                entries = shadow.history.view(np.int64).reshape(-1, ENTRY_BYTES // 8)
                yield entries[-(-first >> shadow.granule) : last >> shadow.granule], shadow.granule

    def coordinates_of(self, block_number: int) -> Dim:
        """Return the coordinates of a block by its number in the order of the schedule."""
        position = scheduled_block(block_number, self.get("block_count"), self.get("cluster_size"), self.get("reverse"))
        return self._block_at(position if self.blocks is None else self.blocks[block_number])

    def format_block(self, block: Dim) -> str:
        """Format a block for messages: by its coordinates, or in Triton by those of its cluster, which is the
        program.
        """
        cluster_width = self.cluster[0] if self.module.of_triton else 1
        return fault_messages.format_coordinates(
            (block[0] // cluster_width, *block[1:]), (self.grid[0] // cluster_width, *self.grid[1:])
        )

    def _block_at(self, position: int) -> Dim:
        """Return the coordinates of a block by its position; the blocks of a cluster are consecutive."""
        # Positions count clusters with x fastest, and the blocks within one with x fastest.
        cluster, rank = divmod(position, math.prod(self.cluster))
        columns, rows = (
            count // cluster_extent for count, cluster_extent in zip(self.grid[:2], self.cluster, strict=False)
        )
        first = cluster % columns, cluster // columns % rows, cluster // (columns * rows)
        width, height, _ = self.cluster
        inside = rank % width, rank // width % height, rank // (width * height)
        x, y, z = (a * n + b for a, n, b in zip(first, self.cluster, inside, strict=True))
        return x, y, z

    def _extend_to_clusters(self, blocks: Sequence[int]) -> list[int]:
        """Return the positions of a sample's blocks, given by their numbers with x fastest, and of the rest of their
        clusters.
        """
        (columns, rows, _) = self.grid
        (width, height, depth) = self.cluster
        size = width * height * depth
        extended = dict[int, None]()
        for number in blocks:
            x = number % columns // width
            y = number // columns % rows // height
            z = number // (columns * rows) // depth
            first = ((z * (rows // height) + y) * (columns // width) + x) * size
            extended |= dict.fromkeys(range(first, first + size))
        return list(extended)

    def last_writer(self, address: int) -> AccessOrigin | None:
        """Return the origin of the last write to an address of global memory; None if this launch did not write
        there.
        """
        for shadow in self.shadows:
            offset = address - shadow.buffer.address
            if 0 <= offset < shadow.buffer.nbytes:
                entry_offset = (offset >> shadow.granule) * ENTRY_BYTES
                write_word = int(shadow.history[entry_offset : entry_offset + 8].view(np.int64)[0])
                # The history outlives launches, but the turns that tell the block of an access are those of this
                # launch.
                is_by_this_launch = write_word and time_of(write_word) >= self.get("launch_began")
                return self.origin_of(id_of(write_word), time_of(write_word)) if is_by_this_launch else None
        return None


def place_statics(
    module: Module, allocate: Callable[[int], npt.NDArray[np.uint8]] = aligned
) -> dict[str, npt.NDArray[np.uint8]]:
    """Return memory for the module's variables, with their initial values; ``allocate`` aligns to 256.

    They are in one allocation with a gap after each, so that no access past the end of one hits another.
    """
    # Each variable at a multiple of 256 bytes, with at least 256 unused bytes after it.
    # Constants are neighbors, so that one range has all of them.
    variables = {
        name: variable
        for space in ("global", "const")
        for name, variable in module.variables.items()
        if variable.space == space and variable.size
    }
    sizes = [-(-variable.size // 256) * 256 + 256 for variable in variables.values()]
    memory = allocate(sum(sizes)) if sizes else aligned(0)
    starts = accumulate(sizes, initial=0)
    statics = {
        name: memory[start_offset : start_offset + variables[name].size]
        for name, start_offset in zip(variables, starts, strict=False)
    }
    for name, variable in variables.items():
        initial = variable.initial or b""
        statics[name][: len(initial)] = np.frombuffer(initial, np.uint8)
        for offset, target in variable.pointers:
            start = module.code_address(target) if target in module.functions else address_of(statics[target])
            address = np.array([start], np.int64)
            statics[name][offset : offset + 8] = address.view(np.uint8)
    return statics
