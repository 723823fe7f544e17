"""Assign slots to registers: their offsets in a warp's record."""

from __future__ import annotations

from collections import Counter

from warpcheck.layout import LANES
from warpcheck.lower.control_flow import Block, Flow
from warpcheck.ptx import SIZES, Register

__all__ = ["CARRY", "assign_slots"]

CARRY = Register("%cc")  # the register of carries, which has no name in PTX


def assign_slots(flow: Flow, start: int) -> tuple[dict[str, int], int]:
    """Return the offset of every register, from ``start`` on, and the end of all of them.

    Registers that live between blocks, or that several blocks name, have slots of their own. The other registers share
    the slots after those, each from its first to its last use in its block: a short record of a warp stays in the
    cache.
    """
    # A slot that is freed at a register's last use is given to the next register of the same size (linear scan).
    slots: dict[str, int] = {}
    end = start
    blocks = Counter(
        name for block in flow.blocks for name in {name for names in block.operand_names for name in names}
    )
    long_lived = {name for name, count in blocks.items() if count > 1}.union(*(block.live_in for block in flow.blocks))
    # Sorted, because a set of strings has another order in each process.
    for name in [CARRY.name, *sorted(long_lived & flow.registers.keys())]:
        slots[name] = end
        end += _bytes(flow.registers[name])
    return slots, max(_assign_block_slots(flow, block, slots, end) for block in flow.blocks)


def _assign_block_slots(flow: Flow, block: Block, slots: dict[str, int], end: int) -> int:
    local_names = [
        [name for name in names if name in flow.registers and name not in slots] for names in block.operand_names
    ]
    last_use = {name: position for position, names in enumerate(local_names) for name in names}
    free: dict[int, list[int]] = {}
    assigned: dict[str, int] = {}
    for position, names in enumerate(local_names):
        for name in names:
            if name not in assigned:
                size = _bytes(flow.registers[name])
                free_slots = free.setdefault(size, [])
                if not free_slots:
                    free_slots.append(end)
                    end += size
                assigned[name] = free_slots.pop()
        # Slots are freed only after all registers of the instruction have theirs, so no result takes the slot of a
        # source. A register that is named twice is freed once.
        for name in dict.fromkeys(names):
            if last_use[name] == position:
                free[_bytes(flow.registers[name])].append(assigned[name])
    slots |= assigned
    return end


def _bytes(kind: str) -> int:
    """Return the size of a slot for 32 lanes: predicates take one bit each; every slot begins at a multiple of 64."""
    return 64 if kind == "pred" else max(64, LANES * SIZES[kind])
