"""The fault in each mutant of the kernels in ``blackwell_sources``, and the message of the machine."""

from __future__ import annotations

from machine.blackwell_sources import HEAD, KERNELS
from machine.hopper_mutants import Mutant
from warpcheck.simt import FaultKind

__all__ = ["MUTANTS", "line_of"]

RACE, UNFENCED, TENSOR = FaultKind.RACE, FaultKind.UNFENCED, FaultKind.TENSOR_MEMORY
DESCRIPTOR, BOUNDS = FaultKind.DESCRIPTOR, FaultKind.OUT_OF_BOUNDS
UNWRITTEN = FaultKind.UNINITIALIZED

MUTANTS = (
    Mutant("gemm", 1, RACE, "multiplies", "with no barrier between it and the tcgen05.ld of thread", "loads"),
    Mutant("gemm", 2, UNFENCED, "loads", "tcgen05.fence::after_thread_sync is missing", "multiplies"),
    Mutant("gemm", 3, RACE, "fills", "a wait for the mbarrier of its tcgen05.commit has to come first", "multiplies"),
    Mutant("gemm", 4, TENSOR, "allocates", "tcgen05.dealloc is missing before it exits"),
    Mutant("gemm", 5, TENSOR, "loads", "warp 1 can access lanes 32 to 63 alone"),
    Mutant("gemm", 6, TENSOR, "frees again", "where no allocation begins"),
    Mutant("gemm", 7, TENSOR, "allocates more", "allocates 32 columns of tensor memory, more than the block has left"),
    Mutant("gemm", 8, TENSOR, "allocates", "allocates 48 columns of tensor memory: it has to be a power of two"),
    Mutant("gemm", 9, TENSOR, "frees", "with 64 columns, and it was allocated with another number"),
    Mutant("gemm", 10, BOUNDS, "loads", "reads column 32 of tensor memory, from lane 0 on, which is not allocated"),
    Mutant("gemm", 11, RACE, "frees", "still uses: wait for it first", "multiplies"),
    Mutant("gemm", 12, RACE, "frees", "the tcgen05.ld of thread", "loads"),
    Mutant("gemm", 13, UNFENCED, "multiplies", "with no fence.proxy.async between them", "fills"),
    Mutant("gemm", 14, DESCRIPTOR, "multiplies", "whose bits 46 to 48 are not 0b001: is it one of wgmma?"),
    Mutant("gemm", 15, DESCRIPTOR, "multiplies", "with M = 96 and N = 16"),
    Mutant("gemm", 16, UNWRITTEN, "multiplies", "column 0 of tensor memory, from lane 0 on, which nothing has written"),
    Mutant("gemm", 17, TENSOR, "allocates late", "after tcgen05.relinquish_alloc_permit"),
    Mutant("gemm", 18, UNFENCED, "multiplies", "which thread 0 writes", "fills"),
    Mutant("gemm", 19, None, "init", "done[0], which is in phase 0 (pending arrivals: 1 of 2"),
    Mutant("gemm", 20, RACE, "loads", "has yet to write: have it tracked by tcgen05.commit", "multiplies"),
    Mutant("gemm", 21, RACE, "loads", "by the thread that issues it", "multiplies"),
    Mutant("gemm", 22, TENSOR, "loads", "the lane of its address is not a multiple"),
    Mutant("gemm", 28, DESCRIPTOR, "multiplies", "whose types its kind does not have"),
    Mutant("gemm", 29, FaultKind.BAD_MASK, "loads", "runs tcgen05.ld"),
    Mutant("gemm", 30, UNWRITTEN, "waits for the result", "nothing has initialized an mbarrier there"),
    Mutant("gemm", 31, FaultKind.BARRIER, "commits", "where no mbarrier is"),
    Mutant("chain", 1, RACE, "multiplies", "its warp has to execute tcgen05.wait::st first", "stores"),
    Mutant("chain", 2, UNFENCED, "multiplies", "tcgen05.fence::before_thread_sync in front of the barrier", "stores"),
    Mutant("chain", 3, UNWRITTEN, "multiplies", "from lane 32 on, which nothing has written"),
    Mutant("chain", 4, UNFENCED, "multiplies", "tcgen05.fence::after_thread_sync is missing", "stores"),
    Mutant(
        "chain", 5, RACE, "overwrites", "has yet to read: wait for the mbarrier of its tcgen05.commit", "multiplies"
    ),
    Mutant("chain", 6, RACE, "clears", "has yet to write: wait for the mbarrier of its tcgen05.commit", "multiplies"),
    Mutant("chain", 7, RACE, "multiplies", "its warp has to execute tcgen05.wait::ld first", "loads"),
    Mutant("chain", 8, RACE, "multiplies otherwise", "the same accumulator, shape and kind", "multiplies"),
    Mutant("chain", 9, RACE, "multiplies back", "the same accumulator, shape and kind", "multiplies"),
    Mutant("pair", 1, None, "waits", "for mbarrier done, which is in phase 0"),
    Mutant(
        "pair", 2, BOUNDS, "multiplies", "column 0 of tensor memory of block 1, from lane 0 on, which is not allocated"
    ),
    Mutant("pair", 3, UNWRITTEN, "loads", "which nothing has written"),
    Mutant("pair", 4, UNFENCED, "loads", "tcgen05.fence::after_thread_sync is missing", "multiplies"),
    Mutant(
        "pair", 5, RACE, "overwrites", "a wait for the mbarrier of its tcgen05.commit has to come first", "multiplies"
    ),
    Mutant("pair", 6, TENSOR, "allocates both", "tcgen05.dealloc is missing before it exits"),
)
"""What is found with the blocks in order."""


def line_of(kernel: str, mark: str) -> int:
    """The line of a kernel's source that ends in this comment."""
    lines = (HEAD + KERNELS[kernel]).splitlines()
    (line,) = (number for number, line in enumerate(lines, 1) if line.endswith(f"// {mark}"))
    return line
