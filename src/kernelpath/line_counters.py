"""Store what each source line did on the PTX machine, as plain data of a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelpath import words
from warpcheck.layout import Access

if TYPE_CHECKING:
    from warpcheck.counters import AccessCounters, LineCounters

# The lanes of a warp.
LANES = 32

# The bytes of a sector, the unit in which global memory is accessed.
SECTOR_BYTES = 32

# The bytes that an instruction can load or store for a lane.
WIDTHS = (1, 2, 4, 8, 16)

# The words for the kinds of accesses.
ACCESSES = {Access.LOAD: "load from", Access.STORE: "store to", Access.ATOMIC: "atomic on"}

# An access that costs more than this factor times the minimum is wasteful.
WASTE = 1.05


@dataclass(frozen=True)
class LineTraffic:
    """The accesses of one source line to one tensor, summed over all launches of one case.

    Attributes:
        access: One of ACCESSES.
        memory: The name of the tensor, or of the variable in shared memory.
        requests: The accesses of whole warps.
        sectors: The cost in global memory.
        ideal_sectors: The fewest sectors that hold the requested bytes.
        wavefronts: The cost in shared memory.
        ideal_wavefronts: The fewest wavefronts that move the requested bytes.
        scattered: Sectors of single requests that neither the requested bytes nor their alignment explain.
        same_address: The most lanes that contend for one address, summed over atomic requests.
        asynchronous: The part of ideal_wavefronts of copies from global memory that bypass the registers.
        bulk: The part of sectors that bulk and tensor copies move (TMA).
        lanes: The lanes that took part, summed over the requests.
        bytes: The bytes that they requested.
    """

    file: str
    line: int
    access: str
    memory: str
    requests: int
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    scattered: int = 0
    same_address: int = 0
    asynchronous: int = 0
    bulk: int = 0
    lanes: int = 0
    bytes: int = 0

    @classmethod
    def from_counters(cls, file: str, counters: AccessCounters) -> LineTraffic:
        return cls(
            file=file,
            line=counters.line,
            access=ACCESSES[counters.access],
            memory=counters.buffer or "shared memory",
            requests=counters.requests,
            sectors=counters.sectors,
            ideal_sectors=0 if counters.shared else counters.least_sectors,
            wavefronts=counters.wavefronts,
            ideal_wavefronts=counters.least_wavefronts,
            scattered=counters.scattered,
            same_address=counters.same_address,
            asynchronous=counters.asynchronous,
            bulk=counters.bulk,
            lanes=counters.lanes,
            bytes=counters.bytes,
        )

    @property
    def bytes_per_access(self) -> float:
        """The bytes that an instruction loads or stores for each lane, on average: 1 to 16."""
        return self.bytes / self.lanes if self.lanes else 0.0

    @property
    def mixed(self) -> bool:
        """True where its instructions have several widths: the compiler may split a vector that the line names."""
        return self.lanes > 0 and self.bytes_per_access not in WIDTHS

    @property
    def sectors_over_ideal(self) -> float:
        return self.sectors / self.ideal_sectors if self.ideal_sectors else 1.0

    @property
    def bank_conflicts_per_request(self) -> float:
        return (self.wavefronts - self.ideal_wavefronts) / self.requests if self.requests else 0.0

    @property
    def same_address_per_request(self) -> float:
        """The average contention: 1 where all lanes of every atomic request have different addresses, 32 where all have
        one.
        """
        return self.same_address / self.requests if self.requests else 0.0

    @property
    def waste(self) -> float:
        """The cost of this access, as a multiple of the minimum."""
        return max(self.sectors_over_ideal, 1.0 + self.bank_conflicts_per_request, self.same_address_per_request)

    @property
    def at_the_least(self) -> bool:
        """True where its lanes are few and each request moves a single sector, the least that a request can move."""
        return self.sectors <= self.requests and self.ideal_sectors < self.requests and not self.wavefronts

    @property
    def place(self) -> str:
        return f"{words.line(self.line)}, {self.access} {self.memory}"

    @property
    def cost(self) -> str:
        """The cost of a request, and the minimum for its bytes: "32 sectors per request, its bytes fit in 4"."""
        if self.same_address_per_request > 1 and self.same_address_per_request >= self.waste:
            return words.taking_turns(self.same_address_per_request)
        if self.ideal_sectors and self.ideal_sectors < self.requests:  # few lanes: no request needs less than a sector
            requested = SECTOR_BYTES * self.ideal_sectors / self.requests
            moved = SECTOR_BYTES * self.sectors / self.requests
            return f"each request moves {moved:.3g} bytes for the {requested:.3g} that its lanes ask for"
        if self.wavefronts:
            return words.per_request(
                self.wavefronts / self.requests, "wavefront", self.ideal_wavefronts / self.requests
            )
        return words.per_request(self.sectors / self.requests, "sector", self.ideal_sectors / self.requests)


@dataclass(frozen=True)
class LineInstructions:
    """The instructions of one source line, summed over all launches of one case.

    Attributes:
        instructions: The instructions that warps executed.
        active_lanes: The active lanes of each instruction, summed. A lane whose predicate is false is active.
        divergent_branches: How often the lanes of a warp took different branches.
        integer: Integer instructions, for indices mostly, summed over the lanes. A division counts as all its
            instructions.
        special: Instructions of the special function unit, such as exponentials, summed over the lanes.
    """

    file: str
    line: int
    instructions: int
    active_lanes: int
    divergent_branches: int = 0
    integer: int = 0
    special: int = 0

    @classmethod
    def from_counters(cls, file: str, line: int, counters: LineCounters) -> LineInstructions:
        return cls(
            file=file,
            line=line,
            instructions=counters.warp_instructions,
            active_lanes=counters.active_lanes,
            divergent_branches=counters.divergent_branches,
            integer=counters.integer_instructions,
            special=counters.instructions.get("special function", 0),
        )

    @property
    def active(self) -> float:
        """The active lanes of the average instruction, at most 32."""
        return self.active_lanes / self.instructions if self.instructions else 0.0

    @property
    def idle(self) -> int:
        """The lanes that were not active, summed over the instructions."""
        return LANES * self.instructions - self.active_lanes


@dataclass(frozen=True)
class CallCounts:
    """What a call did on the PTX machine, summed over its lines and launches.

    Attributes:
        elements: The elements of the outputs.
        requests: The accesses of whole warps to global and to shared memory.
        wavefronts: The cost in shared memory.
        instructions: The instructions that warps executed.
        bytes: The requested bytes of global memory, 32 for each sector.
    """

    elements: int
    requests: int
    wavefronts: int
    instructions: int
    bytes: int

    @classmethod
    def of_lines(
        cls, elements: int, traffic: Iterable[LineTraffic], instructions: Iterable[LineInstructions]
    ) -> CallCounts:
        """Return the sums over the lines of a call."""
        lines = list(traffic)
        return cls(
            elements=elements,
            requests=sum(line.requests for line in lines),
            wavefronts=sum(line.wavefronts for line in lines),
            instructions=sum(line.instructions for line in instructions),
            bytes=SECTOR_BYTES * sum(line.sectors for line in lines),
        )
