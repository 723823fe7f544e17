"""Compute how many warps a multiprocessor holds at once, from what a thread block needs.

The limits are those of ``target``. Registers are allocated to warps in units of 256, from one of four partitions with a
quarter of the registers each; shared memory to blocks in units of 128 bytes (256 before sm_80), with 1 KiB of each
block's reserved for the system since sm_80.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpcheck.assembler import assembled
from warpcheck.layout import LANES
from warpcheck.target import MULTIPROCESSORS, PARTITIONS, Multiprocessor

__all__ = ["MULTIPROCESSORS", "Multiprocessor", "Occupancy", "occupancy", "registers"]


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks and warps of a multiprocessor, the share of the warps possible, and what limits them."""

    blocks: int
    warps: int
    share: float
    limit: str


def occupancy(threads: int, registers: int, shared: int, device: str = "sm_80") -> Occupancy:
    """Return the occupancy of a kernel: ``threads`` per block, ``registers`` per thread, ``shared`` bytes per block.

    ``limit`` is "warps", "blocks", "registers" or "shared memory". Raises ValueError if not even one block fits.
    """
    # The specific targets sm_90a and sm_100a have the limits of sm_90 and sm_100.
    unit = MULTIPROCESSORS[device.rstrip("a")]
    warps = -(-threads // LANES)
    registers_of_warp = _round_up(registers * LANES, 256)
    shared_of_block = _round_up(shared + unit.shared_reserved, unit.shared_unit)
    # The blocks that each resource alone would allow; the scarcest one decides.
    blocks_by = {
        "warps": unit.warps // warps,
        "blocks": unit.blocks,
        "registers": _warps_by_registers(unit, registers_of_warp) // warps if registers else unit.blocks,
        "shared memory": unit.shared // shared_of_block if shared_of_block else unit.blocks,
    }
    limit = min(blocks_by, key=blocks_by.__getitem__)
    blocks = blocks_by[limit]
    if blocks == 0:
        needs = f"{threads} threads, {registers} registers per thread and {shared} bytes of shared memory"
        raise ValueError(f"too many resources requested for launch: a block of {needs} exceeds an SM's {limit}")
    return Occupancy(blocks, blocks * warps, blocks * warps / unit.warps, limit)


def _round_up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit


def _warps_by_registers(unit: Multiprocessor, registers_of_warp: int) -> int:
    """Return the warps for which there are registers: a warp has all of them in one partition."""
    # What is left of one partition cannot be added to what is left of another one.
    return unit.registers // PARTITIONS // registers_of_warp * PARTITIONS


def registers(ptx: str, kernel: str, device: str = "sm_80") -> int | None:
    """Return the registers per thread of ``kernel``, as ptxas assigns them; None if there is no ptxas or it rejects
    the PTX.
    """
    code = assembled(ptx, kernel, device)
    return code.registers if code is not None else None
