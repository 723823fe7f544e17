"""Find how the hardware executes the accesses of PTX, from what ptxas has decided.

ptxas merges loads and stores of neighboring words into accesses of 8 and 16 bytes, across the iterations of loops that
it unrolls, too. Its line table maps each machine instruction to a line of PTX: a merged load to its first one, a merged
store to its last one. An access that cannot be matched in this way counts as its PTX says.
"""

from __future__ import annotations

import struct
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from warpcheck.assembler import assembled
from warpcheck.elf import line_rows, sections
from warpcheck.layout import Access, AtomicStrategy, Space
from warpcheck.lower.control_flow import Block
from warpcheck.lowered_kernel import AccessSite, Lowered, SassAccess
from warpcheck.ptx import Address, Immediate, Instruction, Operand, Register, Symbol

__all__ = ["instructions_by_line", "match_sass"]

WIDEST = 16  # bytes of a lane in one access
LINES = ".nv_debug_line_sass"  # of the PTX text, by address of the machine code
# The relocations of the line table, which give the function of each sequence: offsets and symbols, with addends from
# sm_90 on.
ADDRESSES = {".rel" + LINES: struct.Struct("<QQ"), ".rela" + LINES: struct.Struct("<QQ8x")}

# The low nine bits of the instructions that access memory, as ``nvdisasm -hex`` shows them.
OPCODES = {
    **dict.fromkeys((0x180, 0x181, 0x184), Access.LOAD),  # LD, LDG, LDS
    **dict.fromkeys((0x185, 0x186, 0x188), Access.STORE),  # ST, STG, STS
    **dict.fromkeys((0x18C, 0x18D, 0x18E, 0x1A8, 0x1A9), Access.ATOMIC),  # ATOMS, ATOMS.CAS, RED, ATOMG, ATOMG.CAS
}
# ATOMS.POPC.INC, all twelve bits of it, and ATOMS.CAS.
INCREMENT = 0xF8C
SWAP = 0x18D
# VOTE, VOTEU and REDUX: by these ptxas has one lane do the atomic operation of all that run it.
VOTES = {0x006, 0x086, 0x1C4}
# Bytes of a lane in a load or a store, by what bits 73 to 75 hold.
SIZES = (1, 1, 2, 2, 4, 8, 16, 0)

ALWAYS = 7  # the predicate PT, in bits 12 to 14; bit 15 negates it


def match_sass(lowered: Lowered, blocks: Sequence[Block], text: str, kernel: str) -> list[AccessSite]:
    """Return the sites of a kernel with their SassAccess. ``text`` is the PTX file, which ptxas assembles for its
    target.
    """
    sites = lowered.sites
    matching = Matching(lowered, blocks)
    if not matching.may_merge or (code := assembled(text, kernel)) is None:
        return sites
    by_line = instructions_by_line(code.cubin)
    accesses = matching.merged(by_line) | matching.atomic(by_line)
    return [
        replace(site, sass_access=accesses[number]) if number in accesses else site for number, site in enumerate(sites)
    ]


class SassInstruction(NamedTuple):
    """A machine instruction: its opcode, whether it has a predicate, the bytes of a lane if it loads or stores."""

    code: int
    guarded: bool
    bytes: int

    @property
    def access(self) -> Access | None:
        return OPCODES.get(self.code & 0x1FF)


def instructions_by_line(cubin: bytes) -> dict[int, list[SassInstruction]]:
    """Return the machine instructions of a cubin by the line of PTX that each stands for."""
    by_line = defaultdict(list)
    parts = sections(cubin)
    content = {part.name: part.content for part in parts}
    # Elf64_Sym: its fourth field, st_shndx, is the section of the symbol; each kernel has one of its own.
    symbols = [number for *_, number, _, _ in struct.iter_unpack("<IBBHQQ", content[".symtab"])]
    relocations = sorted(
        row for name, layout in ADDRESSES.items() for row in layout.iter_unpack(content.get(name, b""))
    )
    # The upper half of r_info is the number of the symbol (ELF64_R_SYM).
    functions = [symbols[info >> 32] for _, info in relocations]
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for sequence, address, line in line_rows(content.get(LINES, b"")):
        rows[functions[sequence]].append((address, line))
    for function, lines in rows.items():
        # Since Volta an instruction has 128 bits.
        for index, (low, high) in enumerate(struct.iter_unpack("<QQ", parts[function].content)):
            # The last row at the instruction or before it: no line is as large as 1 << 40.
            if row := bisect(lines, (16 * index, 1 << 40)):
                instruction = SassInstruction(low & 0xFFF, low >> 12 & 15 != ALWAYS, SIZES[high >> 9 & 7])
                by_line[lines[row - 1][1]].append(instruction)
    return by_line


@dataclass(frozen=True)
class MergeCandidate:
    """An access of a basic block that may be merged with others whose addresses have the same base."""

    site: int
    ptx_line: int
    bytes: int
    family: tuple[int, Operand, Access, Space]
    offset: int


class Matching:
    """The accesses of a kernel that ptxas may merge."""

    def __init__(self, lowered: Lowered, blocks: Sequence[Block]) -> None:
        self.sites = lowered.sites
        self.shared = lowered.shared
        self.blocks = blocks

    @cached_property
    def candidates(self) -> list[MergeCandidate]:
        """Return the accesses that are alone on a line of PTX, each in its block."""
        numbers = defaultdict(list)
        for number, site in enumerate(self.sites):
            if site.ptx_line:
                numbers[site.ptx_line].append(number)
        places = defaultdict(list)
        for number, block in enumerate(self.blocks):
            for instruction in block.instructions:
                if instruction.ptx_line in numbers:
                    places[instruction.ptx_line].append((number, instruction))
        return [
            self._candidate(number, *occurrence)
            for at, site_numbers in numbers.items()
            # Inlined calls repeat a line of PTX. Sites and instructions correspond only if they are equally many.
            if len(site_numbers) == len(places[at])
            for number, occurrence in zip(site_numbers, places[at], strict=True)
            if any(isinstance(operand, Address) for operand in occurrence[1].operands)
        ]

    def _candidate(self, number: int, block: int, instruction: Instruction) -> MergeCandidate:
        site = self.sites[number]
        address = next(operand for operand in instruction.operands if isinstance(operand, Address))
        base, offset = self._resolved(address.base, address.offset)
        return MergeCandidate(number, site.ptx_line, site.bytes, (block, base, site.access, site.space), offset)

    def _resolved(self, base: Operand, offset: int) -> tuple[Operand, int]:
        """Return an address as a base and the sum of the constants that are added to it."""
        while isinstance(base, Register) and (definition := self._definitions.get(base.name)):
            base = definition[0]
            offset = offset + definition[1]
        # Variables in shared memory are neighbors in one window, so ptxas may merge accesses to two of them.
        if isinstance(base, Symbol):
            offset += base.offset
            base = Symbol(base.name)
            if base.name in self.shared:
                offset += self.shared[base.name].start
                base = Symbol("shared")
        # As a signed number of 32 bits, however the PTX has written it.
        return base, (offset + (1 << 31)) % (1 << 32) - (1 << 31)

    @cached_property
    def _definitions(self) -> dict[str, tuple[Operand, int]]:
        """Return registers that are another one, or a variable's address, plus a constant; each is written once."""
        written = Counter(
            operand.name
            for block in self.blocks
            for i in block.instructions
            for operand in i.operands[:1]
            if isinstance(operand, Register)
        )
        definitions = {}
        # A register that is written twice, or under a guard, has no single definition.
        for i in (i for block in self.blocks for i in block.instructions if i.guard is None):
            match i.opcode, i.operands:
                case "add", (Register(name), base, Immediate(value)) if written[name] == 1:
                    definitions[name] = base, value
                case "mov", (Register(name), Register() | Symbol() as base) if written[name] == 1:
                    definitions[name] = base, 0
        return definitions

    @cached_property
    def families(self) -> dict[tuple[int, Operand, Access, Space], list[MergeCandidate]]:
        """Return the loads and the stores that differ only by constants, ordered by their offsets."""
        by_family = defaultdict(list)
        for candidate in sorted(self.candidates, key=lambda candidate: candidate.offset):
            if self.sites[candidate.site].access != Access.ATOMIC:
                by_family[candidate.family].append(candidate)
        return by_family

    @property
    def may_merge(self) -> bool:
        """Return whether there is an atomic, or two neighbors in shared memory, or one in a loop that ptxas may
        unroll.
        """
        if any(site.access == Access.ATOMIC for site in self.sites):
            return True
        narrow = [
            candidate
            for candidate in self.candidates
            if candidate.bytes < WIDEST and self.sites[candidate.site].space == Space.SHARED
        ]
        positions = {(candidate.family, candidate.offset) for candidate in narrow}
        return any(
            candidate.family[0] in self.blocks[candidate.family[0]].successors
            or any(
                (candidate.family, candidate.offset + step) in positions
                for step in (candidate.bytes, WIDEST - candidate.bytes)
            )
            for candidate in narrow
        )

    def atomic(self, by_line: Mapping[int, list[SassInstruction]]) -> dict[int, SassAccess]:
        """Return how the hardware executes atomic operations, by the numbers of their sites.

        A second one of a block may use what the lanes have agreed on for the first.
        """
        accesses = {}
        voted = set()
        for candidate in sorted(self.candidates, key=lambda candidate: candidate.ptx_line):
            site = self.sites[candidate.site]
            instructions = by_line.get(candidate.ptx_line, [])
            atomics = [instruction for instruction in instructions if instruction.access == Access.ATOMIC]
            if site.access == Access.ATOMIC and atomics:
                if VOTES.intersection(instruction.code & 0x1FF for instruction in instructions):
                    voted.add(candidate.family[0])
                # ATOMS.CAS for another operation is a loop; a vote before a guarded atomic elects one lane.
                strategy = AtomicStrategy.TURNS
                if any(instruction.code & 0x1FF == SWAP for instruction in atomics):
                    strategy = AtomicStrategy.SWAP if "cas" in site.text.split(".") else AtomicStrategy.SPIN
                elif any(instruction.code == INCREMENT for instruction in atomics):
                    strategy = AtomicStrategy.INCREMENT
                elif candidate.family[0] in voted and all(instruction.guarded for instruction in atomics):
                    strategy = AtomicStrategy.ELECTED
                accesses[candidate.site] = SassAccess(candidate.bytes, strategy=strategy)
        return accesses

    def merged(self, by_line: Mapping[int, list[SassInstruction]]) -> dict[int, SassAccess]:
        """Return how the hardware executes loads and stores, by the numbers of their sites."""
        accesses = {}
        groups = 0
        for family in self.families.values():
            widths: dict[int, list[MergeCandidate]] = defaultdict(list)
            widened: list[tuple[MergeCandidate, int]] = []
            for candidate in family:
                access = self.sites[candidate.site].access
                if sizes := [
                    instruction.bytes
                    for instruction in by_line.get(candidate.ptx_line, ())
                    if instruction.access == access
                ]:
                    # Where several machine instructions stand for a line, the width of most of them counts; of equally
                    # frequent ones the largest.
                    (width, _), *_ = Counter(sorted(sizes, reverse=True)).most_common(1)
                    accesses[candidate.site] = SassAccess(width)
                    if width > candidate.bytes:
                        widened.append((candidate, width))
                        widths[width].append(candidate)
            for candidate in family:
                # No instruction is left of this access: it went into a wider one that overlaps it, the nearest of the
                # widest.
                if candidate.site not in accesses:
                    overlapping = [
                        (width, -abs(candidate.offset - wider.offset))
                        for wider, width in widened
                        if abs(candidate.offset - wider.offset) < width
                    ]
                    if overlapping:
                        widths[max(overlapping)[0]].append(candidate)
            for width, members in widths.items():
                for group in _runs_within(members, width):
                    groups += 1
                    span = group[-1].offset - group[0].offset + group[-1].bytes
                    # A power of two with room for what the group touches in one iteration, and for the next ones.
                    chunks = 1 << (span // width + 1).bit_length()
                    accesses |= {candidate.site: SassAccess(width, groups, chunks) for candidate in group}
        return accesses


def _runs_within(members: Sequence[MergeCandidate], width: int) -> Iterator[list[MergeCandidate]]:
    """Yield the runs of accesses whose offsets differ by less than a width."""
    run: list[MergeCandidate] = []
    for candidate in sorted(members, key=lambda candidate: candidate.offset):
        if run and candidate.offset - run[-1].offset >= width:
            yield run
            run = []
        run.append(candidate)
    if run:
        yield run
