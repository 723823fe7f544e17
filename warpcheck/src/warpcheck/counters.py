"""What a launch did, summed by source line and by access. ``run.transactions`` counts what one access costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol

from warpcheck.classes import instruction_class, machine_instructions
from warpcheck.layout import BANKS, SECTOR, Access
from warpcheck.lowered import Lowered

__all__ = ["BANKS", "AccessCounters", "AccessSample", "LineCounters", "by_access", "by_line"]


@dataclass
class LineCounters:
    """What one source line did, summed over the launch. Requests are accesses of whole warps.

    ``sectors`` are of 32 bytes; ``*_bytes`` are those that the lanes asked for; ``least_wavefronts`` is what the same
    words need without bank conflicts. ``bulk_*`` are of bulk and tensor copies: a request is a box, whichever lanes
    issue it, and its bytes are those in shared memory; ``multicast_sectors`` are those that L2 need not send again, for
    a copy goes to several blocks. ``active_lanes`` sums the lanes of every instruction that a warp executed,
    ``warp_instructions`` counts those instructions; ``instructions`` counts lanes by class of instruction, and
    ``integer_instructions`` those of integers as the GPU executes them: see ``classes`` for divisions.
    What wgmma reads of shared memory is no shared load: a warpgroup reads B once, and each warp its rows of A.
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
    bulk_load_requests: int = 0
    bulk_load_sectors: int = 0
    bulk_load_bytes: int = 0
    bulk_store_requests: int = 0
    bulk_store_sectors: int = 0
    bulk_store_bytes: int = 0
    multicast_sectors: int = 0
    wgmma_wavefronts: int = 0
    wgmma_bytes: int = 0
    branches: int = 0
    divergent_branches: int = 0
    warp_instructions: int = 0
    active_lanes: int = 0
    integer_instructions: int = 0
    instructions: dict[str, int] = field(default_factory=dict)

    @property
    def sectors_per_request(self) -> float:
        """Global sectors over global requests; 0 without requests. 4 is best for 4-byte accesses of whole warps."""
        requests = self.global_load_requests + self.global_store_requests
        return (self.global_load_sectors + self.global_store_sectors) / requests if requests else 0.0

    @property
    def bank_conflicts(self) -> int:
        """Shared-memory wavefronts over the least possible."""
        wavefronts = self.shared_load_wavefronts + self.shared_store_wavefronts
        return wavefronts - self.shared_load_least_wavefronts - self.shared_store_least_wavefronts

    @property
    def bank_conflicts_per_request(self) -> float:
        """Extra wavefronts over shared requests; 0 without requests."""
        requests = self.shared_load_requests + self.shared_store_requests
        return self.bank_conflicts / requests if requests else 0.0

    @property
    def lanes_per_instruction(self) -> float:
        """Active lanes of the average instruction, at most 32."""
        return self.active_lanes / self.warp_instructions if self.warp_instructions else 0.0

    @property
    def most_tensor_operations(self) -> int:
        """That the instructions of tensor cores can have made: a lane's share of a wmma, or of a wgmma m64n256k32."""
        share = 2 * 64 * 256 * 32 // 128 if self.wgmma_bytes else 2 * 16 * 16 * 16 // 32
        return self.instructions.get("tensor", 0) * share

    @property
    def executed(self) -> tuple[int, int, int, int]:
        """Instructions of warps, the lanes active in them, the branches that diverged, and what integers took."""
        return self.warp_instructions, self.active_lanes, self.divergent_branches, self.integer_instructions

    def add_accesses(
        self,
        access: Access,
        size: int,
        requests: int,
        lanes: int,
        sectors: int,
        wavefronts: int,
        least: int,
        scattered: int,
        same_address: int,
    ) -> None:
        """Add the counters of one instruction that loads or stores ``size`` bytes in each lane.

        ``scattered`` and ``same_address`` are not summed by line.
        """
        direction = "load" if access == Access.LOAD else "store"
        if sectors:
            added = {"requests": requests, "sectors": sectors, "bytes": lanes * size}
        elif wavefronts:
            added = {"requests": requests, "wavefronts": wavefronts, "least_wavefronts": least, "bytes": lanes * size}
        else:
            return
        for name, amount in added.items():
            name = f"{'global' if sectors else 'shared'}_{direction}_{name}"
            setattr(self, name, getattr(self, name) + amount)

    def add_bulk(self, access: Access, requests: int, nbytes: int, sectors: int, multicast: int) -> None:
        """Add the counters of one instruction that copies in bulk."""
        if nbytes:
            direction = "load" if access == Access.LOAD else "store"
            for name, amount in (("requests", requests), ("bytes", nbytes), ("sectors", sectors)):
                name = f"bulk_{direction}_{name}"
                setattr(self, name, getattr(self, name) + amount)
            self.multicast_sectors += multicast

    def add(self, other: LineCounters) -> None:
        """Add another line's counts to these."""
        for item in fields(self):
            if item.name != "instructions":
                setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
        for name, count in other.instructions.items():
            self.instructions[name] = self.instructions.get(name, 0) + count


@dataclass(frozen=True)
class AccessSample:
    """One request of one instruction, and what all its requests cost together.

    ``offsets`` has the byte offset of each active lane in ``buffer``, or in the block's shared memory, where ``buffer``
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
        """Whether it is a copy that does not go through registers."""
        return "cp.async" in self.instruction

    @property
    def bulk(self) -> bool:
        """Whether it is a bulk or tensor copy, or such a reduction: the work of the TMA unit."""
        return "async.bulk" in self.instruction


class Counted(Protocol):
    """A launch, by what it did: one in this process, or one that was told from another."""

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
    """What a line's loads, its stores or its atomics asked of one buffer, or of one variable in shared memory.

    ``scattered`` are the sectors of single requests that no alignment explains: see ``run.transactions.scattered``.
    ``lanes`` are those that took part, summed over the requests, and ``bytes`` what they asked for.
    ``same_address`` sums over atomic requests the most lanes that met at one address; 0 for loads and stores.
    ``asynchronous`` are those of ``least_wavefronts`` that copies from global memory need, and ``bulk`` those of
    ``sectors`` that bulk and tensor copies move.
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
        """The 32-byte sectors that the bytes asked for fill."""
        return -(-self.bytes // SECTOR)


def is_barrier(instruction: str) -> bool:
    """Whether it works on a barrier in memory, which is no access as the hardware counts.

    On an H200 an arrival takes 6 clocks, of one lane as of 32, which take turns at an atomic of 64 bits for 163; and
    ncu's smsp__inst_executed_op_shared_atom is 0.
    """
    return instruction.lstrip("@").startswith(("mbarrier", "cp.async.mbarrier"))


def by_access(accesses: Iterable[AccessSample]) -> list[AccessCounters]:
    """Sum over the copies that the compiler made of an access."""
    copies: dict[tuple[int, Access, bool, str], list[AccessSample]] = defaultdict(list)
    for one in accesses:
        if is_barrier(one.instruction):
            continue
        copies[one.line, one.access, one.shared, one.buffer].append(one)
    return [
        AccessCounters(
            *place,
            requests=sum(one.requests for one in found),
            lanes=sum(one.lanes for one in found),
            bytes=sum(one.lanes * one.bytes for one in found),
            sectors=sum(one.sectors for one in found),
            wavefronts=sum(one.wavefronts for one in found),
            least_wavefronts=sum(one.least_wavefronts for one in found),
            scattered=sum(one.scattered for one in found),
            same_address=sum(one.same_address for one in found),
            asynchronous=sum(one.least_wavefronts for one in found if one.asynchronous),
            bulk=sum(one.sectors for one in found if one.bulk),
        )
        for place, found in sorted(copies.items())
    ]


def by_line(
    lowered: Lowered, blocks: Sequence[Sequence[int]], sites: Sequence[Sequence[int]]
) -> dict[int, LineCounters]:
    """Sum the counters of a launch by source line.

    ``blocks`` has executions, active lanes and divergent branches of each basic block, ``sites`` a row of COUNTS each.
    """
    lines: dict[int, LineCounters] = defaultdict(LineCounters)
    for block, (runs, lanes, divergent) in zip(lowered.blocks, blocks, strict=True):
        for line, name in block:
            lines[line].warp_instructions += runs
            lines[line].active_lanes += lanes
            kind = instruction_class(name)
            if kind == "integer":
                lines[line].integer_instructions += lanes * machine_instructions(name)
            lines[line].instructions[kind] = lines[line].instructions.get(kind, 0) + lanes
        line, name = block[-1]
        if name.startswith("@bra"):
            lines[line].branches += runs
            lines[line].divergent_branches += divergent
    for site, counts in zip(lowered.sites, sites, strict=False):
        if is_barrier(site.text):
            continue
        *accesses, nbytes, bulk_sectors, multicast, looped = counts
        if site.is_wgmma:
            _, chunks, _, wavefronts, *_ = accesses
            lines[site.line].wgmma_wavefronts += wavefronts
            lines[site.line].wgmma_bytes += chunks * site.bytes
            continue
        lines[site.line].add_accesses(site.access, site.width, *accesses)
        lines[site.line].shared_load_requests += counts[0] if looped else 0
        lines[site.line].shared_load_wavefronts += looped
        lines[site.line].shared_load_least_wavefronts += looped
        lines[site.line].add_bulk(site.access, counts[0], nbytes, bulk_sectors, multicast)
    return dict(sorted(lines.items()))
