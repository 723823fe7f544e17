"""Load PTX and launch its kernels: the interface of the PTX machine."""

from __future__ import annotations

import copy
import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from warpcheck import ptx
from warpcheck.compiler import Program, compile_kernel
from warpcheck.counters import AccessSample, LaunchCounters, LineCounters
from warpcheck.errors import Fault, TimedOut
from warpcheck.events import Event
from warpcheck.index_overflow import require_reach
from warpcheck.layout import WRITTEN
from warpcheck.lowered_kernel import parameter_offsets
from warpcheck.ptx.directives import pad
from warpcheck.runtime.arrays import Dim, aligned
from warpcheck.runtime.buffers import Buffer, Memory, bytes_reached
from warpcheck.runtime.host import execute
from warpcheck.runtime.last_reads import most_bytes_read
from warpcheck.runtime.launch import AccessOrigin, Configuration, Grid, place_statics
from warpcheck.runtime.rank_memory import RankMemory, find_unordered_read, find_unordered_write, mark_device_scopes
from warpcheck.runtime.records import COUNTED
from warpcheck.runtime.symbols import source_name
from warpcheck.runtime.timeline import barrier_lines, collect_events
from warpcheck.target import SM_80, TARGETS, Target
from warpcheck.threads import default_threads

if TYPE_CHECKING:
    from warpcheck import occupancy

__all__ = ["NEGATED", "Kernel", "Launch", "Module", "Param", "load"]

NEGATED = "negated "  # before the digest of a text whose products of tensor cores are negated
# The most configurations of launches that are kept of a kernel.
MAX_CONFIGURATIONS = 256

LIMIT = 1 << 31  # lane-instructions of a launch where the caller sets no limit: some seconds


@dataclass(frozen=True)
class Param:
    """A kernel parameter: PTX type, size and alignment in bytes."""

    name: str
    type: str
    size: int
    align: int

    @classmethod
    def of(cls, variable: ptx.Variable) -> Param:
        return cls(variable.name, variable.type, variable.size, variable.align)


@dataclass(frozen=True)
class Kernel:
    """A kernel before it is launched.

    ``reqntid`` and ``cluster`` are empty if the PTX does not fix the threads of a block, or the blocks of a cluster.
    """

    name: str
    params: tuple[Param, ...]
    reqntid: tuple[int, ...]
    cluster: tuple[int, ...] = ()


@dataclass
class Launch:
    """The results of a launch: counters by source line of ``file``, and the text it printed. ``ptx`` is the whole
    module.

    ``writer`` returns the origin of the last write to an address, or None.
    ``events`` is empty unless ``recorded``; see ``events``. ``reached`` has how far, in bytes, a sample of the blocks
    accessed each buffer; ``cut`` is whether the launch ended at its limit of instructions, before all blocks of the
    sample had finished. ``barriers`` has the line that initializes each mbarrier of ``events`` that no variable names.
    ``share_before_trigger`` is the share of its lane-instructions that the average block executes before
    griddepcontrol.launch_dependents, and ``share_before_wait`` that of its sectors of global memory before
    griddepcontrol.wait, if the launch may overlap others; 1 without the instruction.
    """

    kernel: str
    file: str
    counters: LaunchCounters = field(repr=False)
    printed: str
    collect_accesses: Callable[[], list[AccessSample]] = field(repr=False)
    ptx: str = field(repr=False)
    states: dict[str, npt.NDArray[np.uint8]] = field(repr=False)
    writer: Callable[[int], AccessOrigin | None] = field(repr=False)
    most_bytes_read: Callable[[int, int], int] = field(repr=False)
    events: list[Event] = field(default_factory=list, repr=False)
    reached: dict[str, int] = field(default_factory=dict, repr=False)
    cut: bool = False
    barriers: dict[str, int] = field(default_factory=dict, repr=False)
    share_before_wait: float = 1.0
    share_before_trigger: float = 1.0

    @property
    def lines(self) -> dict[int, LineCounters]:
        """The counters by source line."""
        return self.counters.lines

    @property
    def totals(self) -> LineCounters:
        """The sum over all lines."""
        return self.counters.totals

    @property
    def instructions(self) -> int:
        """The number of lane-instructions."""
        return self.totals.active_lanes

    @property
    def cost(self) -> int:
        """An estimate of an SM's time; see `LaunchCounters.cost`."""
        return self.counters.cost

    @cached_property
    def accesses(self) -> list[AccessSample]:
        """One request of each instruction that touches memory."""
        return self.collect_accesses()

    @property
    def buffers_written(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Return for each buffer, by name, which of its bytes kernels have stored to: one bool per byte."""
        return {name: np.equal(state, WRITTEN) for name, state in self.states.items()}


class Module:
    """A loaded PTX file on the device ``target``. A kernel is compiled when it is first launched."""

    def __init__(self, text: str, source: str | None, target: Target | None = None) -> None:
        self.text = text
        self.parsed = ptx.parse(text, source)
        self.target = target or TARGETS.get(self.parsed.target, SM_80)
        # In the words of CUDA_ERROR_NO_BINARY_FOR_GPU.
        if self.parsed.target and not self.target.loads(self.parsed.target):
            has = f"the PTX is for {self.parsed.target}, the device is {self.target.name}"
            raise ValueError(f"no kernel image is available for execution on the device: {has}")
        # A compiled kernel has line numbers of the source file, so the same text for another file is another kernel.
        self.digest = hashlib.sha256(f"{source}\0{text}".encode()).hexdigest()
        self.programs: dict[str, Program] = {}
        self.allocate: Callable[[int], npt.NDArray[np.uint8]] = aligned

    def fresh(self, allocate: Callable[[int], npt.NDArray[np.uint8]] | None = None) -> Module:
        """Return the same code with variables at their initial values, as another process loads it.

        Args:
            allocate: Returns zeroed bytes for the variables, at a multiple of 256.
        """
        module = copy.copy(self)
        module.allocate = allocate or self.allocate
        # A cached_property is kept in the instance's __dict__: without it, the next use allocates the variables again.
        module.__dict__.pop("statics", None)
        return module

    def negated(self) -> Module:
        """Return the same code with the products of tensor cores negated, and its own variables. See mma_negation."""
        module = self.fresh()
        module.parsed = ptx.negate_products(self.parsed)
        # The digest is part of the cache key, and the text is the same.
        module.digest = f"{NEGATED}{self.digest}"
        module.programs = {}
        return module

    @cached_property
    def statics(self) -> dict[str, npt.NDArray[np.uint8]]:
        """Return the variables of the file that outlive a launch: their bytes by name."""
        return place_statics(self.parsed, self.allocate)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """Return the kernels of the file by name."""
        return {
            name: Kernel(
                name=name,
                params=tuple(map(Param.of, function.params)),
                reqntid=function.directives.reqntid,
                cluster=function.directives.cluster,
            )
            for name, function in self.parsed.functions.items()
            if function.entry
        }

    def compile(self, name: str) -> None:
        """Compile a kernel, unless that is done; `launch` does it otherwise. Raises Unsupported and KeyError."""
        if name not in self.programs:
            self.programs[name] = compile_kernel(self.parsed, name, self.digest, self.target)

    def uses_shared_memory(self, name: str) -> bool:
        """Return whether a kernel that `compile` has compiled has shared memory beside its dynamic one."""
        return self.programs[name].lowered.shared_bytes > 0

    def occupancy(
        self, name: str, block: Sequence[int], shared: int = 0, device: str = ""
    ) -> occupancy.Occupancy | None:
        """Return the occupancy of a kernel in blocks of ``block`` threads with ``shared`` dynamic bytes; None
        without ptxas.

        ``device`` is a target by its name, that of the module if it is empty. Raises ValueError if a block does not fit
        on a multiprocessor.
        """
        from warpcheck import occupancy  # which solves an exercise: the process of a submission has none

        self.compile(name)
        device = device or self.target.name
        registers = occupancy.registers(self.text, name, device)
        if registers is None:
            return None
        x, y, z = _dim(block)
        return occupancy.occupancy(x * y * z, registers, self.programs[name].lowered.shared_bytes + shared, device)

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
        is_limit_per_block: bool = False,
        reverse: int = 0,
        blocks: Sequence[int] | None = None,
        cooperative: bool = False,
        cluster: Sequence[int] = (),
        rank_memory: Sequence[RankMemory] = (),
        shared_fill: int | None = None,
        programmatic_stream_serialization: bool = False,
        threads: int | None = None,
    ) -> Launch:
        """Run a kernel to its end.

        Args:
            shared: Dynamic shared memory in bytes.
            args: Packed by the parameters' types; pointers are ints.
            memory: Keeps the shadow memory of the buffers from one launch to the next.
            is_limit_per_block: Count the instructions for the limit from the last time that a block ended.
            reverse: The order of blocks and warps: 0 ascending, 1 descending, a prime for a stride; see
                runtime.schedule_order.
            blocks: The numbers of the blocks to run, x fastest, in this order, if a sample is enough: then the limit is
                no fault,
                and blocks that are not neighbors must not write to one element of a buffer of 4 GiB and more, not even
                the same
                value. Races in smaller buffers are not looked for; a loop whose index would overflow is a fault
                (narrow).
            cooperative: Whether all blocks are resident together; there can be no more of them than the GPU holds.
            cluster: The blocks of a cluster along each axis; by default as the kernel declares them.
            rank_memory: The memory of each rank, if the y coordinate of a block is its rank; see runtime.rank_memory.
            shared_fill: Fill the shared memory of each block with this byte, and let it count as written.
            programmatic_stream_serialization: Whether the launch may begin before the last one with the same ``memory``
                has ended. It still runs behind it, but an access that griddepcontrol.wait does not order is a race.
            threads: How many threads may run the blocks; by default as `threads.default_threads` says. The outcome does
                not depend on it.

        Raises Fault, Unsupported, TimedOut, and KeyError or ValueError for a launch that is not possible.
        """
        self.compile(name)
        compiled = self.programs[name]
        configuration = self._configure(
            name, _dim(grid), _dim(block), _dim(cluster) if cluster else None, shared, cooperative
        )
        memory = memory or Memory()
        run = Grid(
            configuration,
            arguments=pack(self.parsed.functions[name], args),
            buffers=buffers,
            statics=self.statics,
            memory=memory,
            reverse=reverse,
            blocks=blocks,
            shared_fill=shared_fill,
            programmatic_stream_serialization=programmatic_stream_serialization,
        )
        if rank_memory:
            mark_device_scopes(run)
        limit = max_instructions or LIMIT
        try:
            cut = execute(
                run,
                compiled.run_grid,
                limit,
                restarts=is_limit_per_block,
                find_workers=lambda: compiled.workers(threads or default_threads()),
            )
        except (Fault, TimedOut) as error:
            # The events up to the fault show how it came about.
            if run.has_array("events"):
                error.launch = self._report(run, buffers)
            raise
        if rank_memory:
            fault = find_unordered_read(run, rank_memory) or find_unordered_write(run, rank_memory)
            if fault is not None:
                raise fault
        report = self._report(run, buffers, cut)
        # The records of its blocks may have megabytes. What remains finds the last writer of an address, and what a
        # launch behind it may overlap.
        del run.residents
        if blocks is not None:
            # A sample seldom gets far enough for an index to overflow; of a loop that it has entered the PTX tells
            # (index_overflow).
            branched_lines = {line for line, counters in report.lines.items() if counters.branches}
            require_reach(self.parsed.functions[name], args, branched_lines, report.file)
        return report

    def _configure(
        self, name: str, grid: Dim, block: Dim, cluster: Dim | None, shared: int, cooperative: bool
    ) -> Configuration:
        """Return a compiled kernel with the configuration of a launch. Raises ValueError if no GPU would launch it."""
        configurations = self.programs[name].configurations
        key = grid, block, cluster, shared, cooperative
        if key in configurations:
            return configurations[key]
        lowered = self.programs[name].lowered
        directives = self.parsed.functions[name].directives
        extents = cluster or pad(directives.cluster)
        if refusal := self.target.refusal(grid, block, lowered.shared_bytes, shared, extents or (1, 1, 1)):
            raise ValueError(refusal)
        if refusal := directives.refusal(source_name(name), block, cluster):
            raise ValueError(refusal)
        # The most blocks that the GPU would hold at once: so many may be resident and wait for each other.
        room = self.target.multiprocessors * self._blocks(name, grid, block, shared, cooperative)
        if len(configurations) >= MAX_CONFIGURATIONS:
            configurations.clear()
        configurations[key] = Configuration(self.parsed, name, lowered, grid, block, extents, shared, room, cooperative)
        return configurations[key]

    def _blocks(self, name: str, grid: Dim, block: Dim, shared: int, cooperative: bool) -> int:
        """Return the blocks that fit on a multiprocessor. ptxas provides the registers if a launch depends on them.

        Raises ValueError if not one block fits, or not all of a cooperative launch.
        """
        from warpcheck import occupancy  # as above

        threads, blocks = (x * y * z for x, y, z in (block, grid))
        registers = 0
        has_fixed_block = self.parsed.functions[name].directives.reqntid  # for which ptxas has to find registers
        # Registers can limit a launch only if its block would not fit with the most that a thread may have.
        is_register_limited = (
            not has_fixed_block and threads * self.target.registers > self.target.multiprocessor.registers
        )
        if is_register_limited or (cooperative and blocks > self.target.multiprocessors):
            registers = occupancy.registers(self.text, name, self.target.name) or 0
        shared_bytes = self.programs[name].lowered.shared_bytes + shared
        blocks_per_sm = occupancy.occupancy(threads, registers, shared_bytes, self.target.name).blocks
        # All blocks of a cooperative launch are resident at the same time.
        if cooperative and blocks > (capacity := blocks_per_sm * self.target.multiprocessors):
            limits = f"{capacity} fit, {blocks_per_sm} on each of {self.target.multiprocessors} SMs"
            raise ValueError(f"too many blocks in cooperative launch: {blocks}, and {limits}")
        return blocks_per_sm

    def _report(self, run: Grid, buffers: Sequence[Buffer], cut: bool = False) -> Launch:
        """Return the results of a launch that has ended, or was ``cut``."""
        sampled = run.blocks is not None
        return Launch(
            kernel=run.name,
            file=self.parsed.file,
            counters=LaunchCounters(run.lowered, run.block_counts, run.counts, len(COUNTED)),
            printed="".join(run.printed),
            collect_accesses=run.accesses(),
            ptx=self.text,
            states={buffer.name: run.state_of(buffer) for buffer in buffers},
            writer=run.last_writer,
            most_bytes_read=partial(most_bytes_read, run),
            events=collect_events(run),
            barriers=barrier_lines(run),
            reached={
                sampled_buffer.name: bytes_reached(run.array("buffers"), sampled_buffer.address)
                for sampled_buffer in buffers
            }
            if sampled
            else {},
            cut=cut,
            share_before_wait=run.share_before_wait(),
            share_before_trigger=run.get("clock_before_trigger") / max(run.get("clock_before_exit"), 1),
        )


def load(text: str, source: str | None = None, target: Target | None = None) -> Module:
    """Load PTX ``text`` on a device of ``target``, by default the target of the PTX.

    Line numbers refer to ``source``, else to the first file that the PTX names. Equal texts give the same Module.
    Raises ValueError for text that is not PTX, and for PTX that the device does not load.
    """
    key = (text, source, target)
    if key not in _MODULES:
        _MODULES[key] = Module(text, source, target)
    return _MODULES[key]


_MODULES: dict[tuple[str, str | None, Target | None], Module] = {}
_CODES = {"f32": "f", "f64": "d", "f16": "e"}


def pack(kernel: ptx.Function, args: Sequence[int | float | bytes]) -> bytes:
    """Return kernel arguments as the bytes of its parameter space."""
    if len(args) != len(kernel.params):
        raise ValueError(f"{kernel.name} takes {len(kernel.params)} arguments, {len(args)} were given")
    packed = bytearray()
    for (parameter, offset), value in zip(parameter_offsets(kernel), args, strict=True):
        # Padding up to the parameter's alignment.
        packed = packed.ljust(offset, b"\0")
        if isinstance(value, bytes):
            packed += value.ljust(parameter.size, b"\0")[: parameter.size]
        elif parameter.type in _CODES or isinstance(value, float):
            # A float for a parameter of bits (.b32): its size decides the type.
            packed += struct.pack(
                "<" + (_CODES.get(parameter.type) or {2: "e", 8: "d"}.get(parameter.size, "f")), value
            )
        else:
            packed += (int(value) & (1 << 8 * parameter.size) - 1).to_bytes(parameter.size, "little")
    return bytes(packed)


def _dim(extents: Sequence[int]) -> Dim:
    x, y, z = (*map(int, extents), 1, 1, 1)[:3]
    if x < 1 or y < 1 or z < 1:
        raise ValueError(f"a grid or block of {tuple(extents)} has nothing to run")
    return x, y, z
