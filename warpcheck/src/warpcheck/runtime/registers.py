"""Registers that warps hand back and ask for. PTX ISA manual, "setmaxnreg"."""

from __future__ import annotations

from warpcheck.native import native
from warpcheck.runtime.arrays import Dim
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord
from warpcheck.target import MULTIPROCESSORS

__all__ = ["registers_at_launch", "set_registers"]

LARGEST, UNIT = 256, 8  # registers of a thread: the most, and what they come in


@native
def set_registers(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, count: int, mask: int, grows: int) -> int:
    """A warp wants ``count`` registers for each thread: it waits until the pool of its block has them."""
    more = count - warp.registers
    warp.failing, warp.waits_at = 0, 0
    if grows and more > cta.registers_left:
        warp.failing = mask
    elif grows == (more > 0):
        cta.registers_left -= more
        warp.registers = count
        launch.time += 1
    return 0


def registers_at_launch(most: int, block: Dim) -> int:
    """Registers of each thread as a block begins: as many as it is compiled for at ``most``, or as an SM has for it."""
    threads = block[0] * block[1] * block[2]
    share = MULTIPROCESSORS["sm_90"].registers // threads
    return min(most or LARGEST, share // UNIT * UNIT)
