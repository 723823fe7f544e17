"""Which accesses of the hardware serve those of PTX, by what ptxas decided.

ptxas merges loads and stores of neighboring words into accesses of 8 and 16 bytes, across the iterations of loops that
it unrolls, too. Its line table tells for each machine instruction which line of PTX it stands for: a load of the first
that is merged, a store of the last, none of the others. What cannot be matched so counts as its PTX says.
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
from warpcheck.lower.flow import Block
from warpcheck.lowered import AccessSite, Lowered, SassAccess
from warpcheck.ptx import Address, Immediate, Instruction, Operand, Register, Symbol

__all__ = ["made_of", "served"]

WIDEST = 16  # bytes of a lane in one access
LINES = ".nv_debug_line_sass"  # of the PTX text, by address of the machine code
ADDRESSES = {".rel" + LINES: struct.Struct("<QQ"), ".rela" + LINES: struct.Struct("<QQ8x")}
"""Which function each sequence of it is of: offsets and symbols of its relocations, with addends from sm_90 on."""

OPCODES = {
    **dict.fromkeys((0x180, 0x181, 0x184), Access.LOAD),  # LD, LDG, LDS
    **dict.fromkeys((0x185, 0x186, 0x188), Access.STORE),  # ST, STG, STS
    **dict.fromkeys((0x18C, 0x18D, 0x18E, 0x1A8, 0x1A9), Access.ATOMIC),  # ATOMS, ATOMS.CAS, RED, ATOMG, ATOMG.CAS
}
"""The low nine bits of the instructions that access memory, as ``nvdisasm -hex`` shows them."""
INCREMENT = 0xF8C
SWAP = 0x18D
"""ATOMS.POPC.INC, all twelve bits of it, and ATOMS.CAS."""
VOTES = {0x006, 0x086, 0x1C4}
"""VOTE, VOTEU and REDUX: by these ptxas has one lane do the atomic operation of all that run it."""
SIZES = (1, 1, 2, 2, 4, 8, 16, 0)
"""Bytes of a lane in a load or a store, by what bits 73 to 75 hold."""
ALWAYS = 7  # the predicate PT, in bits 12 to 14; bit 15 negates it


def served(lowered: Lowered, blocks: Sequence[Block], text: str, kernel: str) -> list[AccessSite]:
    """The sites of a kernel with how the hardware serves them. text: of the PTX file, whose target ptxas takes."""
    sites = lowered.sites
    matching = Matching(lowered, blocks)
    if not matching.may_merge or (code := assembled(text, kernel)) is None:
        return sites
    made = made_of(code.cubin)
    found = matching.merged(made) | matching.atomic(made)
    return [replace(site, served=found[n]) if n in found else site for n, site in enumerate(sites)]


class Made(NamedTuple):
    """A machine instruction: its opcode, whether it has a predicate, the bytes of a lane if it loads or stores."""

    code: int
    guarded: bool
    bytes: int

    @property
    def access(self) -> Access | None:
        return OPCODES.get(self.code & 0x1FF)


def made_of(cubin: bytes) -> dict[int, list[Made]]:
    """The machine instructions of a cubin by the line of PTX that each stands for."""
    found = defaultdict(list)
    parts = sections(cubin)
    content = {part.name: part.content for part in parts}
    symbols = [number for *_, number, _, _ in struct.iter_unpack("<IBBHQQ", content[".symtab"])]
    relocations = sorted(row for name, form in ADDRESSES.items() for row in form.iter_unpack(content.get(name, b"")))
    functions = [symbols[info >> 32] for _, info in relocations]
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for sequence, address, line in line_rows(content.get(LINES, b"")):
        rows[functions[sequence]].append((address, line))
    for function, lines in rows.items():
        for place, (low, high) in enumerate(struct.iter_unpack("<QQ", parts[function].content)):
            if row := bisect(lines, (16 * place, 1 << 40)):
                made = Made(low & 0xFFF, low >> 12 & 15 != ALWAYS, SIZES[high >> 9 & 7])
                found[lines[row - 1][1]].append(made)
    return found


@dataclass(frozen=True)
class Merger:
    """An access of a basic block that may be merged with others whose addresses have the same base."""

    site: int
    at: int
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
    def mergers(self) -> list[Merger]:
        """Accesses that stand on a line of PTX alone, each in its block."""
        numbers = defaultdict(list)
        for number, site in enumerate(self.sites):
            if site.at:
                numbers[site.at].append(number)
        places = defaultdict(list)
        for number, block in enumerate(self.blocks):
            for instruction in block.instructions:
                if instruction.at in numbers:
                    places[instruction.at].append((number, instruction))
        return [
            self._merger(number, *place)
            for at, found in numbers.items()
            if len(found) == len(places[at])
            for number, place in zip(found, places[at], strict=True)
            if any(isinstance(operand, Address) for operand in place[1].operands)
        ]

    def _merger(self, number: int, block: int, instruction: Instruction) -> Merger:
        site = self.sites[number]
        address = next(operand for operand in instruction.operands if isinstance(operand, Address))
        base, offset = self._resolved(address.base, address.offset)
        return Merger(number, site.at, site.bytes, (block, base, site.access, site.space), offset)

    def _resolved(self, base: Operand, offset: int) -> tuple[Operand, int]:
        """An address without the constants that are added to it."""
        while isinstance(base, Register) and (found := self._definitions.get(base.name)):
            base = found[0]
            offset = offset + found[1]
        if isinstance(base, Symbol):
            base, offset = Symbol(base.name), offset + base.offset
            if base.name in self.shared:
                base, offset = Symbol("shared"), offset + self.shared[base.name].start
        return base, (offset + (1 << 31)) % (1 << 32) - (1 << 31)

    @cached_property
    def _definitions(self) -> dict[str, tuple[Operand, int]]:
        """Registers that are another one, or a variable's address, plus a constant; each is written once."""
        written = Counter(
            operand.name
            for block in self.blocks
            for i in block.instructions
            for operand in i.operands[:1]
            if isinstance(operand, Register)
        )
        found = {}
        for i in (i for block in self.blocks for i in block.instructions if i.guard is None):
            match i.opcode, i.operands:
                case "add", (Register(name), base, Immediate(value)) if written[name] == 1:
                    found[name] = base, value
                case "mov", (Register(name), Register() | Symbol() as base) if written[name] == 1:
                    found[name] = base, 0
        return found

    @cached_property
    def families(self) -> dict[tuple[int, Operand, Access, Space], list[Merger]]:
        """The loads and the stores that differ by constants alone, by their offsets."""
        found = defaultdict(list)
        for one in sorted(self.mergers, key=lambda one: one.offset):
            if self.sites[one.site].access != Access.ATOMIC:
                found[one.family].append(one)
        return found

    @property
    def may_merge(self) -> bool:
        """Whether there is any atomic, or two neighbors in shared memory, or one in a loop that ptxas may unroll."""
        if any(site.access == Access.ATOMIC for site in self.sites):
            return True
        narrow = [one for one in self.mergers if one.bytes < WIDEST and self.sites[one.site].space == Space.SHARED]
        seen = {(one.family, one.offset) for one in narrow}
        return any(
            one.family[0] in self.blocks[one.family[0]].successors
            or any((one.family, one.offset + step) in seen for step in (one.bytes, WIDEST - one.bytes))
            for one in narrow
        )

    def atomic(self, made: Mapping[int, list[Made]]) -> dict[int, SassAccess]:
        """How lanes come to atomic operations, by the numbers of their sites.

        A second one of a block may use what the lanes have agreed on for the first.
        """
        found = {}
        voted = set()
        for one in sorted(self.mergers, key=lambda one: one.at):
            site = self.sites[one.site]
            here = made.get(one.at, [])
            done = [each for each in here if each.access == Access.ATOMIC]
            if site.access == Access.ATOMIC and done:
                if VOTES.intersection(each.code & 0x1FF for each in here):
                    voted.add(one.family[0])
                way = AtomicStrategy.TURNS
                if any(each.code & 0x1FF == SWAP for each in done):
                    way = AtomicStrategy.SWAP if "cas" in site.text.split(".") else AtomicStrategy.SPIN
                elif any(each.code == INCREMENT for each in done):
                    way = AtomicStrategy.INCREMENT
                elif one.family[0] in voted and all(each.guarded for each in done):
                    way = AtomicStrategy.ELECTED
                found[one.site] = SassAccess(one.bytes, way=way)
        return found

    def merged(self, made: Mapping[int, list[Made]]) -> dict[int, SassAccess]:
        """How loads and stores are served, by the numbers of their sites. made: what ptxas made of lines of PTX."""
        found = {}
        groups = 0
        for family in self.families.values():
            widths: dict[int, list[Merger]] = defaultdict(list)
            wide: list[tuple[Merger, int]] = []
            for one in family:
                access = self.sites[one.site].access
                if sizes := [each.bytes for each in made.get(one.at, ()) if each.access == access]:
                    (width, _), *_ = Counter(sorted(sizes, reverse=True)).most_common(1)
                    found[one.site] = SassAccess(width)
                    if width > one.bytes:
                        wide.append((one, width))
                        widths[width].append(one)
            for one in family:
                if one.site not in found:
                    near = [
                        (width, -abs(one.offset - p.offset)) for p, width in wide if abs(one.offset - p.offset) < width
                    ]
                    if near:
                        widths[max(near)[0]].append(one)
            for width, members in widths.items():
                for group in _neighbors(members, width):
                    groups += 1
                    span = group[-1].offset - group[0].offset + group[-1].bytes
                    chunks = 1 << (span // width + 1).bit_length()
                    found |= {one.site: SassAccess(width, groups, chunks) for one in group}
        return found


def _neighbors(members: Sequence[Merger], width: int) -> Iterator[list[Merger]]:
    """The runs of accesses whose offsets lie closer than a width."""
    group: list[Merger] = []
    for one in sorted(members, key=lambda one: one.offset):
        if group and one.offset - group[-1].offset >= width:
            yield group
            group = []
        group.append(one)
    if group:
        yield group
