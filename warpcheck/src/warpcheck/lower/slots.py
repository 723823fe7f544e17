"""Where a warp keeps its registers: bytes of its record."""

from __future__ import annotations

from collections import Counter

from warpcheck.layout import LANES
from warpcheck.lower.flow import Block, Flow
from warpcheck.ptx import SIZES, Register

__all__ = ["CARRY", "place_registers"]

CARRY = Register("%cc")  # the register of carries, which has no name in PTX


def place_registers(flow: Flow, begin: int) -> tuple[dict[str, int], int]:
    """The offset of every register, from ``begin`` on, and the end of them all.

    Registers that live between blocks, or that several name, have places of their own. The others share what comes
    after those, each from the instruction that writes it first to the last that names it: a row of registers that is
    short stays in the cache.
    """
    slots: dict[str, int] = {}
    end = begin
    blocks = Counter(name for block in flow.blocks for name in {name for names in block.named for name in names})
    own = {name for name, count in blocks.items() if count > 1}.union(*(block.live_in for block in flow.blocks))
    for name in [CARRY.name, *sorted(own & flow.registers.keys())]:
        slots[name] = end
        end += _bytes(flow.registers[name])
    return slots, max(_place_own(flow, block, slots, end) for block in flow.blocks)


def _place_own(flow: Flow, block: Block, slots: dict[str, int], end: int) -> int:
    own = [[name for name in names if name in flow.registers and name not in slots] for names in block.named]
    last = {name: at for at, names in enumerate(own) for name in names}
    free: dict[int, list[int]] = {}
    mine: dict[str, int] = {}
    for at, names in enumerate(own):
        for name in names:
            if name not in mine:
                size = _bytes(flow.registers[name])
                room = free.setdefault(size, [])
                if not room:
                    room.append(end)
                    end += size
                mine[name] = room.pop()
        for name in set(names):
            if last[name] == at:
                free[_bytes(flow.registers[name])].append(mine[name])
    slots |= mine
    return end


def _bytes(kind: str) -> int:
    """The room of 32 lanes: predicates are a bit each; every register begins at a multiple of 64."""
    return 64 if kind == "pred" else max(64, LANES * SIZES[kind])
