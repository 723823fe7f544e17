"""The result of lowering a kernel: LLVM IR, and what the host must know to launch it and to read its counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from warpcheck.instruction_classes import instruction_class, machine_instructions
from warpcheck.layout import Access, AtomicStrategy, Space
from warpcheck.ptx import Function, Variable

__all__ = ["UNKNOWN", "AccessSite", "Check", "LineMix", "Lowered", "SassAccess", "parameter_offsets"]


class SassAccess(NamedTuple):
    """How the hardware executes an access of PTX.

    Args:
        bytes: Those of a lane in the instruction that ptxas made of it and its neighbors; 0 if that is not known, and
            each
            access counts as its PTX says.
        group: The number of a group of accesses that are merged, from 1 on; 0 for an access that is not.
        chunks: How many pieces of ``bytes`` bytes a group has in registers at once, a power of two.
        strategy: That of an atomic operation.
    """

    bytes: int = 0
    group: int = 0
    chunks: int = 0
    strategy: AtomicStrategy = AtomicStrategy.TURNS


UNKNOWN = SassAccess()


@dataclass(frozen=True)
class AccessSite:
    """One instruction that touches memory. ``bytes`` is for a lane, ``parts`` the elements of a vector access.

    ``ptx_line`` is its line in the PTX text. ``sass_access`` says how ptxas implements it; see the module of that name.
    """

    space: Space
    access: Access
    bytes: int
    parts: int
    strong: int
    line: int
    text: str
    ptx_line: int = 0
    sass_access: SassAccess = UNKNOWN

    @property
    def width(self) -> int:
        """Return the bytes of a lane in one access of the hardware."""
        return self.sass_access.bytes or self.bytes

    @property
    def words(self) -> list[str]:
        """Return the opcode and the modifiers."""
        return self.text.split(".")

    @property
    def is_bulk(self) -> bool:
        """Return whether it is a bulk copy, or the like, which reaches memory through the asynchronous proxy."""
        return "bulk" in self.words or self.words[0] == "clusterlaunchcontrol"

    @property
    def is_copy(self) -> bool:
        """Return whether it is a cp.async of single elements."""
        return self.words[:2] == ["cp", "async"] and not self.is_bulk

    @property
    def is_wgmma(self) -> bool:
        """Return whether tensor cores read the bytes."""
        return self.words[0] == "wgmma"

    @property
    def is_tcgen05_mma(self) -> bool:
        """Return whether Blackwell's tensor cores read the bytes."""
        return self.words[:2] == ["tcgen05", "mma"]

    @property
    def is_tensor(self) -> bool:
        """Return whether it is an instruction of tensor memory."""
        return self.words[0] == "tcgen05"


class Check(NamedTuple):
    """A function of ``memory`` or ``sync`` that generated code calls, compiled for fixed last parameters."""

    function: str
    constants: tuple[int, ...] = ()

    @property
    def symbol(self) -> str:
        """Return its name in machine code."""
        return "_".join(("check", self.function, *map(str, self.constants)))


@dataclass(frozen=True)
class CompiledShape:
    """Code that instructions of one shape share: the symbol of its function, with the IR of that and of what it
    calls.

    ``sites`` are those of its accesses, for an instruction on line 0. ``checks`` are those that it calls. ``carried``
    is whether it leaves a carry.
    """

    symbol: str
    functions: dict[str, str]
    sites: list[AccessSite]
    checks: set[Check]
    carried: bool


class LineMix(NamedTuple):
    """The instructions of one source line in a basic block.

    Attributes:
        line: The number of the line.
        instructions: How many there are.
        integer_instructions: As how many the GPU executes those of integers; see instruction_classes.
        classes: How many there are of each class.
    """

    line: int
    instructions: int
    integer_instructions: int
    classes: Mapping[str, int]


def _mix_of_lines(block: list[tuple[int, str]]) -> list[LineMix]:
    names: dict[int, list[str]] = {}
    for line, name in block:
        names.setdefault(line, []).append(name)
    return [
        LineMix(
            line,
            len(names_of_line),
            sum(machine_instructions(name) for name in names_of_line if instruction_class(name) == "integer"),
            Counter(map(instruction_class, names_of_line)),
        )
        for line, names_of_line in names.items()
    ]


@dataclass
class Lowered:
    """LLVM IR of a kernel, and what the host must know to launch it and to read its counters.

    ``functions`` has the IR of the functions that it calls, by their symbols.
    """

    ir: str
    warp_bytes: int
    shared_bytes: int
    local_bytes: int
    shared: dict[str, range]  # the bytes of each variable in shared memory; empty for dynamic shared memory
    sites: list[AccessSite] = field(default_factory=list)
    blocks: list[list[tuple[int, str]]] = field(default_factory=list)  # (line, name) of each block's instructions
    symbols: list[str] = field(default_factory=list)
    checks: set[Check] = field(default_factory=set)
    functions: dict[str, str] = field(default_factory=dict)
    successors: list[list[int]] = field(default_factory=list)  # those of each block, without the end of the kernel
    clears_registers: bool = True  # whether it may read registers that nothing has written

    # Every launch needs the following, so they are computed once.

    @cached_property
    def functions_checked(self) -> frozenset[str]:
        """The names of the checks that the kernel calls."""
        return frozenset(check.function for check in self.checks)

    @cached_property
    def line_mixes(self) -> list[list[LineMix]]:
        """For each basic block the instructions of each source line."""
        return [_mix_of_lines(block) for block in self.blocks]

    @cached_property
    def granules(self) -> Mapping[Space, int]:
        """For each space log2 of the smallest access in bytes: the finest unit that two threads share without
        conflict.
        """
        granules = {}
        for space in Space:
            sites = (site for site in self.sites if site.space in (space, Space.GENERIC, Space.CLUSTER))
            granules[space] = min((site.bytes // site.parts for site in sites), default=4).bit_length() - 1
        return granules

    @cached_property
    def merged_sites(self) -> Mapping[int, SassAccess]:
        """How the hardware executes the sites that it merges with others, by their numbers."""
        return {number: site.sass_access for number, site in enumerate(self.sites) if site.sass_access.group}

    @cached_property
    def strategies(self) -> list[AtomicStrategy]:
        """The strategy of each site, for atomic operations."""
        return [site.sass_access.strategy for site in self.sites]

    @cached_property
    def copy_flags(self) -> list[bool]:
        """Whether each site is a cp.async of single elements."""
        return [site.is_copy for site in self.sites]


def parameter_offsets(kernel: Function) -> list[tuple[Variable, int]]:
    """Return each parameter of a kernel with its offset, laid out in order at its natural alignment."""
    offsets: list[tuple[Variable, int]] = []
    end = 0
    for parameter in kernel.params:
        end = -(-end // parameter.align) * parameter.align
        offsets.append((parameter, end))
        end += parameter.size
    return offsets
