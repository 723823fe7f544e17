"""Sum the counters of a launch, by source line and by access.

``runtime.memory_transactions`` counts the cost of one access.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from warpcheck.layout import BANKS, SECTOR, Access
from warpcheck.lowered_kernel import Lowered

__all__ = ["BANKS", "AccessCounters", "AccessSample", "LineCounters", "by_access", "by_line"]


@dataclass
class LineCounters:
    """The counters of one source line, summed over the launch. Requests are accesses of whole warps.

    ``sectors`` are of 32 bytes; ``*_bytes`` are those that the lanes requested; ``least_wavefronts`` are those without
    bank conflicts. ``constant_load_accesses`` are those that constant memory makes, one for each different address of a
    request. ``bulk_*`` count bulk and tensor copies: a request is a box, whichever lanes issue it, and its bytes
    are those in shared memory; ``multicast_sectors`` are those that L2 does not send again, because a copy goes to
    several blocks. ``active_lanes`` sums the lanes of every instruction that a warp executed, ``warp_instructions``
    counts those instructions; ``instructions`` counts lanes by class of instruction, and ``integer_instructions`` those
    of integers as the GPU executes them: see ``instruction_classes`` for divisions. The reads of wgmma are no shared
    loads: a warpgroup reads B once, and each warp its rows of A. Those of tcgen05.mma are counted with them.
    ``tcgen05_operations`` are the operations of its largest shape for each tcgen05.mma.
    """

    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_load_bytes: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_store_bytes: int = 0
    shared_load_requests: int = 0
    shared_load_wavefronts: int = 0
    shared_load_least_wavefronts: int = 0
    shared_load_bytes: int = 0
    shared_store_requests: int = 0
    shared_store_wavefronts: int = 0
    shared_store_least_wavefronts: int = 0
    shared_store_bytes: int = 0
    constant_load_requests: int = 0
    constant_load_accesses: int = 0
    constant_load_bytes: int = 0
    bulk_load_requests: int = 0
    bulk_load_sectors: int = 0
    bulk_load_bytes: int = 0
    bulk_store_requests: int = 0
    bulk_store_sectors: int = 0
    bulk_store_bytes: int = 0
    multicast_sectors: int = 0
    wgmma_wavefronts: int = 0
    wgmma_bytes: int = 0
    tcgen05_operations: int = 0
    branches: int = 0
    divergent_branches: int = 0
    warp_instructions: int = 0
    active_lanes: int = 0
    integer_instructions: int = 0
    instructions: dict[str, int] = field(default_factory=dict)

    @property
    def sectors_per_request(self) -> float:
        """Return global sectors per global request; 0 without requests. 4 is best for 4-byte accesses of whole
        warps.
        """
        requests = self.global_load_requests + self.global_store_requests
        return (self.global_load_sectors + self.global_store_sectors) / requests if requests else 0.0

    @property
    def bank_conflicts(self) -> int:
        """Return the shared-memory wavefronts beyond the least possible."""
        wavefronts = self.shared_load_wavefronts + self.shared_store_wavefronts
        return wavefronts - self.shared_load_least_wavefronts - self.shared_store_least_wavefronts

    @property
    def bank_conflicts_per_request(self) -> float:
        """Return the bank conflicts per shared request; 0 without requests."""
        requests = self.shared_load_requests + self.shared_store_requests
        return self.bank_conflicts / requests if requests else 0.0

    @property
    def lanes_per_instruction(self) -> float:
        """Return the active lanes of the average instruction, at most 32."""
        return self.active_lanes / self.warp_instructions if self.warp_instructions else 0.0

    @property
    def most_tensor_operations(self) -> int:
        """Return the most operations of the tensor-core instructions: a lane's share of a wmma, or of a wgmma
        m64n256k32, or the largest shape of a tcgen05.mma.
        """
        share = 2 * 64 * 256 * 32 // 128 if self.wgmma_bytes else 2 * 16 * 16 * 16 // 32
        return self.instructions.get("tensor", 0) * share + self.tcgen05_operations

    def add_accesses(
        self,
        access: Access,
        size: int,
        requests: int,
        lanes: int,
        sectors: int,
        wavefronts: int,
        least_wavefronts: int,
        scattered: int,
        same_address: int,
    ) -> None:
        """Add the counters of one instruction that loads or stores ``size`` bytes in each lane.

        ``scattered`` and ``same_address`` are not summed by line.
        """
        direction = "load" if access == Access.LOAD else "store"
        if sectors:
            amounts = {"requests": requests, "sectors": sectors, "bytes": lanes * size}
        # Only shared memory has wavefronts, and only global memory has sectors: the counts tell the space of a generic
        # access.
        elif wavefronts:
            amounts = {
                "requests": requests,
                "wavefronts": wavefronts,
                "least_wavefronts": least_wavefronts,
                "bytes": lanes * size,
            }
        elif least_wavefronts:  # constant memory has neither sectors nor banks
            amounts = {"requests": requests, "accesses": least_wavefronts, "bytes": lanes * size}
        else:
            return
        space = "global" if sectors else "shared" if wavefronts else "constant"
        for name, amount in amounts.items():
            name = f"{space}_{direction}_{name}"
            setattr(self, name, getattr(self, name) + amount)

    def add_bulk(self, access: Access, requests: int, nbytes: int, sectors: int, multicast: int) -> None:
        """Add the counters of one instruction that copies in bulk."""
        if nbytes:
            direction = "load" if access == Access.LOAD else "store"
            for name, amount in (("requests", requests), ("bytes", nbytes), ("sectors", sectors)):
                name = f"bulk_{direction}_{name}"
                setattr(self, name, getattr(self, name) + amount)
            self.multicast_sectors += multicast

    def add(self, counters: LineCounters) -> None:
        """Add another line's counts to these."""
        sums = self.__dict__
        amounts = counters.__dict__
        for name in _summed_fields():
            if amount := amounts[name]:  # most are 0
                sums[name] += amount
        for name, count in counters.instructions.items():
            self.instructions[name] = self.instructions.get(name, 0) + count


@cache
def _summed_fields() -> tuple[str, ...]:
    """Return the counters of LineCounters that are numbers."""
    return tuple(item.name for item in fields(LineCounters) if item.name != "instructions")


@dataclass(frozen=True)
class AccessSample:
    """One request of one instruction, and what all its requests cost together.

    ``offsets`` has the byte offset of each active lane in ``buffer``, or in the block's shared memory; then ``buffer``
    is the name of the variable, if it has one.
    """

    line: int
    instruction: str
    shared: bool
    buffer: str
    access: Access
    bytes: int
    offsets: dict[int, int]
    requests: int
    lanes: int
    sectors: int
    wavefronts: int
    least_wavefronts: int
    scattered: int
    same_address: int

    @property
    def asynchronous(self) -> bool:
        """Return whether it is a copy that bypasses registers."""
        return "cp.async" in self.instruction

    @property
    def bulk(self) -> bool:
        """Return whether it is a bulk or tensor copy, or such a reduction: the work of the TMA unit."""
        return "async.bulk" in self.instruction


class Counted(Protocol):
    """The counters of a launch, of this process or of another one."""

    @property
    def kernel(self) -> str: ...

    @property
    def file(self) -> str: ...

    @property
    def lines(self) -> Mapping[int, LineCounters]: ...

    @property
    def accesses(self) -> Sequence[AccessSample]: ...


@dataclass(frozen=True)
class AccessCounters:
    """The counters of a line's loads, stores or atomics to one buffer, or to one variable in shared memory.

    ``scattered`` are the sectors of single requests that no alignment explains: see
    ``runtime.memory_transactions.scattered``. ``lanes`` are those that took part, summed over the requests, and
    ``bytes`` those that they requested. ``same_address`` sums, over atomic requests, the most lanes at one address; 0
    for loads and stores. ``asynchronous`` are those of ``least_wavefronts`` that copies from global memory need, and
    ``bulk`` those of ``sectors`` that bulk and tensor copies move.
    """

    line: int
    access: Access
    shared: bool
    buffer: str
    requests: int
    lanes: int
    bytes: int
    sectors: int
    wavefronts: int
    least_wavefronts: int
    scattered: int
    same_address: int
    asynchronous: int
    bulk: int

    @property
    def least_sectors(self) -> int:
        """Return the 32-byte sectors that the requested bytes fill."""
        return -(-self.bytes // SECTOR)


def is_barrier(instruction: str) -> bool:
    """Return whether an instruction accesses an mbarrier, which the hardware does not count as an access.

    On an H200 an arrival takes 6 clocks, of one lane as of 32, while 32 lanes at one 64-bit atomic take 163; and ncu's
    smsp__inst_executed_op_shared_atom is 0.
    """
    return instruction.lstrip("@").startswith(("mbarrier", "cp.async.mbarrier"))


def by_access(accesses: Iterable[AccessSample]) -> list[AccessCounters]:
    """Sum over the copies that the compiler made of an access."""
    copies: dict[tuple[int, Access, bool, str], list[AccessSample]] = defaultdict(list)
    for sample in accesses:
        if is_barrier(sample.instruction):
            continue
        copies[sample.line, sample.access, sample.shared, sample.buffer].append(sample)
    return [
        AccessCounters(
            *key,
            requests=sum(sample.requests for sample in samples),
            lanes=sum(sample.lanes for sample in samples),
            bytes=sum(sample.lanes * sample.bytes for sample in samples),
            sectors=sum(sample.sectors for sample in samples),
            wavefronts=sum(sample.wavefronts for sample in samples),
            least_wavefronts=sum(sample.least_wavefronts for sample in samples),
            scattered=sum(sample.scattered for sample in samples),
            same_address=sum(sample.same_address for sample in samples),
            asynchronous=sum(sample.least_wavefronts for sample in samples if sample.asynchronous),
            bulk=sum(sample.sectors for sample in samples if sample.bulk),
        )
        for key, samples in sorted(copies.items())
    ]


def _largest_operations(words: Sequence[str]) -> int:
    """Return the operations of the largest shape of a tcgen05.mma. Source: PTX ISA manual, 9.7.16.2.1."""
    kind = next(word for word in words if word.startswith("kind::")).removeprefix("kind::")
    depth = {"f16": 16, "tf32": 8, "mxf4": 64, "mxf4nvf4": 64}.get(kind, 32)
    rows = 256 if "cta_group::2" in words else 128
    return 2 * rows * 256 * depth


class LaunchCounters:
    """The counters of a launch, which are summed when they are first used: many launches are never looked at.

    Args:
        blocks: Executions, active lanes and divergent branches of each basic block.
        sites: A record for each access site, whose first words are those of COUNTED.
        counted: The number of these words.
    """

    def __init__(
        self, lowered: Lowered, blocks: npt.NDArray[np.int64], sites: npt.NDArray[np.void], counted: int
    ) -> None:
        self._lowered = lowered
        # Copies, because the arrays are in the memory of all records of the launch.
        self._blocks = blocks.copy()
        self._sites = sites.copy()
        self._counted = counted

    @cached_property
    def lines(self) -> dict[int, LineCounters]:
        """The counters of each source line that has instructions."""
        rows = self._sites.view(np.int64).reshape(len(self._sites), -1)[:, : self._counted]
        return by_line(self._lowered, self._blocks.tolist(), rows.tolist())

    @cached_property
    def totals(self) -> LineCounters:
        """The sum over all lines."""
        totals = LineCounters()
        for counters in self.lines.values():
            totals.add(counters)
        return totals

    @cached_property
    def cost(self) -> int:
        """An estimate of an SM's time: the warp instructions, and eight for each sector or wavefront."""
        totals = self.totals
        sectors = totals.global_load_sectors + totals.global_store_sectors
        sectors += totals.bulk_load_sectors + totals.bulk_store_sectors
        wavefronts = totals.shared_load_wavefronts + totals.shared_store_wavefronts
        return totals.warp_instructions + 8 * (sectors + wavefronts)


def by_line(
    lowered: Lowered, blocks: Sequence[Sequence[int]], sites: Sequence[Sequence[int]]
) -> dict[int, LineCounters]:
    """Sum the counters of a launch by source line.

    Args:
        blocks: Executions, active lanes and divergent branches of each basic block.
        sites: A row of COUNTED for each access site.
    """
    lines: dict[int, LineCounters] = defaultdict(LineCounters)
    for block, mixes, (runs, lanes, divergent) in zip(lowered.blocks, lowered.line_mixes, blocks, strict=True):
        for line, count, integers, classes in mixes:
            counters = lines[line]
            counters.warp_instructions += runs * count
            counters.active_lanes += lanes * count
            counters.integer_instructions += lanes * integers
            for kind, count_of_class in classes.items():
                counters.instructions[kind] = counters.instructions.get(kind, 0) + lanes * count_of_class
        line, name = block[-1]
        # Only a guarded branch can diverge; it ends its block.
        if name.startswith("@bra"):
            lines[line].branches += runs
            lines[line].divergent_branches += divergent
    for site, counts in zip(lowered.sites, sites, strict=False):
        # The machine checks mbarriers as accesses to shared memory. The hardware has a unit of its own for them.
        if is_barrier(site.text):
            continue
        # In the order of COUNTED.
        *accesses, nbytes, bulk_sectors, multicast, loop_wavefronts = counts
        if site.is_wgmma or site.is_tcgen05_mma:
            # ncu counts what wgmma reads as wavefronts, and not as loads.
            requests, chunks, _, wavefronts, *_ = accesses
            lines[site.line].wgmma_wavefronts += wavefronts
            lines[site.line].wgmma_bytes += chunks * site.bytes
            if site.is_tcgen05_mma:
                lines[site.line].tcgen05_operations += requests * _largest_operations(site.words)
            continue
        lines[site.line].add_accesses(site.access, site.width, *accesses)
        # ptxas makes a loop of a float atomic in shared memory: each turn loads the word before it swaps
        # (AtomicStrategy.SPIN).
        lines[site.line].shared_load_requests += counts[0] if loop_wavefronts else 0
        lines[site.line].shared_load_wavefronts += loop_wavefronts
        lines[site.line].shared_load_least_wavefronts += loop_wavefronts
        lines[site.line].add_bulk(site.access, counts[0], nbytes, bulk_sectors, multicast)
    return dict(sorted(lines.items()))
