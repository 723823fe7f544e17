"""Describe the fault in each mutant of the kernels in ``hopper_sources``, and the message of the machine."""

from __future__ import annotations

from typing import NamedTuple

from machine.hopper_sources import HEAD, KERNELS
from warpcheck.simt import FaultKind

__all__ = ["MUTANTS", "Mutant", "line_of"]


class Mutant(NamedTuple):
    """A kernel in one of its modes, and the fault that the machine must report.

    Attributes:
        kernel: The name of the kernel.
        mode: The mode that selects the mutation.
        kind: The kind of the fault, or None for a hang.
        fault_mark: The comment on the line of the fault.
        message: A part of the message.
        other_mark: The comment on the other line that the message names, if it names one.
    """

    kernel: str
    mode: int
    kind: FaultKind | None
    fault_mark: str
    message: str
    other_mark: str = ""


RACE, UNFENCED, UNWRITTEN = FaultKind.RACE, FaultKind.UNFENCED, FaultKind.UNINITIALIZED
BARRIER, BAD_COPY = FaultKind.BARRIER, FaultKind.BAD_COPY

# The faults with the blocks in forward order. Another order may reveal another fault of the same mutant.
MUTANTS = (
    Mutant("ring", 1, UNWRITTEN, "reads", "may still be writing: wait for its mbarrier first", "fills"),
    Mutant("ring", 2, UNWRITTEN, "reads", "may still be writing: wait for its mbarrier first", "fills"),
    Mutant("ring", 3, BARRIER, "expects", "its warp has arrived in line", "expects"),
    Mutant(
        "ring", 4, None, "expects", "promises 128 bytes, and 256 have landed: promise those of all", "waits for data"
    ),
    Mutant("ring", 5, None, "expects", "promises 384 bytes, and 256 have landed", "waits for data"),
    Mutant("ring", 6, None, "expects", "promises 512 bytes, and 256 have landed", "waits for data"),
    Mutant("ring", 7, RACE, "fills", "that thread arrives behind", "reads"),
    Mutant("ring", 8, RACE, "waits for data", "with no barrier between them", "init"),
    Mutant("ring", 9, None, "waits for room", "for mbarrier empty[0], which is in phase 2 (pending arrivals: 32 of 32"),
    Mutant("ring", 10, RACE, "fills again", "may still be writing: wait for its mbarrier first", "fills"),
    Mutant("ring", 11, UNWRITTEN, "reads", "may still be writing: wait for its mbarrier first", "fills"),
    Mutant("ring", 12, BAD_COPY, "fills", "in shared memory that is not a multiple of 128"),
    Mutant("ring", 13, BARRIER, "far too many", "expects more bytes at full[0] (byte 0 of 16) than a phase may have"),
    Mutant("gemm", 1, UNWRITTEN, "multiplies", "which nothing has written; a copy that brings it has to be waited for"),
    Mutant("gemm", 2, UNFENCED, "stores", "with no fence.proxy.async between them", "writes the result"),
    Mutant("gemm", 3, UNFENCED, "stores", "with no fence.proxy.async between them", "writes the result"),
    Mutant("gemm", 5, RACE, "stores", "which thread", "writes the result"),
    Mutant("gemm", 6, RACE, "fills", "its wgmma.wait_group has to come first", "multiplies"),
    Mutant("gemm", 7, RACE, "fills", "its wgmma.wait_group has to come first", "multiplies"),
    Mutant(
        "gemm",
        8,
        RACE,
        "writes the result",
        "still be reading: wait for its group (cp.async.bulk.wait_group.read)",
        "stores",
    ),
    Mutant("gemm", 9, RACE, "writes the result", "still be reading: wait for its group", "stores"),
    Mutant("gemm", 13, RACE, "stores", "its block exits while the copy may still be reading"),
    Mutant("gemm", 14, RACE, "stores", "commit it and wait for its group (cp.async.bulk.wait_group.read 0) first"),
    Mutant(
        "gemm", 11, None, "waits for a stage", "its threads have 64, and the block has 16 left", "too many registers"
    ),
    Mutant("gemm", 12, None, "waits for a stage", "its threads have 64, and the block has 0 left", "takes registers"),
    Mutant("multicast", 1, RACE, "reads", "may still be writing: wait for its mbarrier first", "sends"),
    Mutant("multicast", 2, UNWRITTEN, "reads", "which nothing has written"),
    Mutant("multicast", 3, BAD_COPY, "sends", "names an mbarrier that is none"),
    Mutant("multicast", 4, FaultKind.OUT_OF_BOUNDS, "there", "which has exited"),
    Mutant("multicast", 5, RACE, "sends", "which thread 0 of block", "init"),
    Mutant("dsmem", 1, RACE, "writes", "of block 0 reads in", "reads there"),
    Mutant("dsmem", 2, FaultKind.OUT_OF_BOUNDS, "reads there", "which has exited"),
    Mutant("dsmem", 3, RACE, "reads there", "which thread 0 of block 1 writes", "writes"),
    Mutant("reduce", 1, UNFENCED, "adds", "with no fence.proxy.async between them", "writes"),
    Mutant("reduce", 2, RACE, "adds", "which thread", "writes"),
    Mutant("reduce", 3, BAD_COPY, "adds", "a number of bytes that is not a multiple of 16"),
    Mutant("reduce", 4, RACE, "writes", "still be reading: wait for its group (cp.async.bulk.wait_group.read)", "adds"),
    Mutant("reduce", 6, UNFENCED, "adds", "with no fence.proxy.async between them", "writes"),
    Mutant("epilogue", 1, UNFENCED, "multiplies", "with no fence.proxy.async between them", "writes A"),
    Mutant("epilogue", 2, RACE, "rounds", "wgmma.wait_group is missing before"),
    Mutant("epilogue", 3, RACE, "overwrites A", "may still read", "multiplies"),
    Mutant("epilogue", 4, UNFENCED, "stores", "with no fence.proxy.async between them", "stmatrix"),
    Mutant("epilogue", 5, RACE, "stores", "which thread", "stmatrix"),
    Mutant("epilogue", 6, BAD_COPY, "stores", "in shared memory that is not a multiple of 128"),
)


def line_of(kernel: str, mark: str) -> int:
    """Return the number of the line that ends in this comment in the source of a kernel."""
    lines = (HEAD + KERNELS[kernel]).splitlines()
    (line,) = (number for number, line in enumerate(lines, 1) if line.endswith(f"// {mark}"))
    return line
