"""Registers that warps release and request. PTX ISA manual, "setmaxnreg"."""

from __future__ import annotations

from warpcheck.native import native
from warpcheck.runtime.arrays import Dim
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord
from warpcheck.target import MULTIPROCESSORS

__all__ = ["registers_at_launch", "set_registers"]

LARGEST = 256  # registers of a thread
UNIT = 8  # their allocation granularity


@native
def set_registers(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, count: int, mask: int, grows: int) -> int:
    """Set a warp's registers to ``count`` for each thread; an increase blocks until the block's pool has them."""
    additional = count - warp.registers
    warp.blocked_lanes = 0
    warp.awaited_mbarrier = 0
    if grows and additional > cta.registers_left:
        warp.blocked_lanes = mask
    elif grows == (additional > 0):
        cta.registers_left -= additional
        warp.registers = count
        launch.time += 1
    return 0


def registers_at_launch(compiled_for: int, block: Dim) -> int:
    """Return the registers of each thread as a block begins: as many as compiled for, or as an SM has for it."""
    threads = block[0] * block[1] * block[2]
    share = MULTIPROCESSORS["sm_90"].registers // threads
    return min(compiled_for or LARGEST, share // UNIT * UNIT)
