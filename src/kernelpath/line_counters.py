"""What each source line did on the PTX machine, as a report keeps it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from kernelpath import words

LANES = 32
"""Of a warp."""

SECTOR_BYTES = 32
"""Bytes of a sector, the unit in which global memory moves."""

WIDTHS = (1, 2, 4, 8, 16)
"""Bytes that an instruction can load or store for a lane."""

WASTE = 1.05
"""An access that costs more than this many times the minimum is wasteful."""


@dataclass(frozen=True)
class LineTraffic:
    """What one source line's loads, stores or atomics asked of one tensor, summed over all launches of one case.

    access: "load from", "store to" or "atomic on". memory: the name of the tensor, or of the variable in shared memory.
    requests: accesses of whole warps. Global memory is counted in sectors, shared memory in wavefronts; the ideal is
    the least that the bytes asked for need. scattered: sectors of single requests that neither the bytes they ask for
    nor their alignment explain. same_address: the most lanes that met at one address, summed over atomic requests.
    asynchronous: the part of ideal_wavefronts that copies from global memory need, which pass by the registers.
    bulk: the part of sectors that bulk and tensor copies move (TMA).
    lanes: those that took part, summed over the requests. bytes: what they asked for.
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

    @property
    def bytes_per_access(self) -> float:
        """What an instruction loads or stores for each lane, on average: 1 to 16."""
        return self.bytes / self.lanes if self.lanes else 0.0

    @property
    def mixed(self) -> bool:
        """Whether its instructions have several widths: the compiler may split a vector that the line names."""
        return self.lanes > 0 and self.bytes_per_access not in WIDTHS

    @property
    def sectors_over_ideal(self) -> float:
        return self.sectors / self.ideal_sectors if self.ideal_sectors else 1.0

    @property
    def bank_conflicts_per_request(self) -> float:
        return (self.wavefronts - self.ideal_wavefronts) / self.requests if self.requests else 0.0

    @property
    def same_address_per_request(self) -> float:
        """1 where the lanes of every atomic request meet nowhere, 32 where all meet at one address."""
        return self.same_address / self.requests if self.requests else 0.0

    @property
    def waste(self) -> float:
        """How many times the minimum this access costs."""
        return max(self.sectors_over_ideal, 1.0 + self.bank_conflicts_per_request, self.same_address_per_request)

    @property
    def at_the_least(self) -> bool:
        """Whether its lanes are few and each request moves a sector, the least that a request can move."""
        return self.sectors <= self.requests and self.ideal_sectors < self.requests and not self.wavefronts

    @property
    def place(self) -> str:
        return f"{words.line(self.line)}, {self.access} {self.memory}"

    @property
    def cost(self) -> str:
        """What a request costs, and the least for its bytes: "32 sectors per request, its bytes fit in 4"."""
        if self.same_address_per_request > 1 and self.same_address_per_request >= self.waste:
            return words.taking_turns(self.same_address_per_request)
        if self.ideal_sectors and self.ideal_sectors < self.requests:  # few lanes: no request needs less than a sector
            asked, moved = (SECTOR_BYTES * sectors / self.requests for sectors in (self.ideal_sectors, self.sectors))
            return f"each request moves {moved:.3g} bytes for the {asked:.3g} that its lanes ask for"
        if self.wavefronts:
            return words.per_request(
                self.wavefronts / self.requests, "wavefront", self.ideal_wavefronts / self.requests
            )
        return words.per_request(self.sectors / self.requests, "sector", self.ideal_sectors / self.requests)


@dataclass(frozen=True)
class LineInstructions:
    """What one source line executed, summed over all launches of one case.

    instructions: those that warps executed. active_lanes: the lanes active in each, summed over them; a lane whose
    predicate is false is active. divergent_branches: how often the lanes of a warp went different ways.
    integer: instructions of integers, indices mostly, summed over the lanes; a division is the many that it takes.
    """

    file: str
    line: int
    instructions: int
    active_lanes: int
    divergent_branches: int = 0
    integer: int = 0

    @property
    def active(self) -> float:
        """Active lanes of the average instruction, at most 32."""
        return self.active_lanes / self.instructions if self.instructions else 0.0

    @property
    def idle(self) -> int:
        """The lanes that were not active, summed over the instructions."""
        return LANES * self.instructions - self.active_lanes
