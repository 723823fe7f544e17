"""Describe the fault in each mutant of the kernels in ``blackwell_sources``, and the message of the machine."""

from __future__ import annotations

from machine.blackwell_sources import HEAD, KERNELS
from machine.hopper_mutants import Mutant
from warpcheck.simt import FaultKind

__all__ = ["MUTANTS", "line_of"]

RACE, UNFENCED, TENSOR = FaultKind.RACE, FaultKind.UNFENCED, FaultKind.TENSOR_MEMORY
DESCRIPTOR, BOUNDS = FaultKind.DESCRIPTOR, FaultKind.OUT_OF_BOUNDS
UNWRITTEN = FaultKind.UNINITIALIZED

# The faults with the blocks in forward order. Another order may reveal another fault of the same mutant.
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
    Mutant(
        "gemm",
        32,
        FaultKind.BARRIER,
        "commits in all lanes",
        "at done[1] (byte 8 of 24) more often than its phase needs: several lanes",
    ),
    Mutant("gemm", 33, RACE, "reads the address", "which the tcgen05.alloc in line"),
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
    Mutant("pair", 7, BOUNDS, "multiplies", "of tensor memory of block 1, from lane 0 on, which is not allocated"),
    Mutant("scaled", 1, RACE, "multiplies elsewhere", "only the thread that issues a tcgen05.cp may go on", "copies"),
    Mutant("scaled", 2, UNFENCED, "copies", "with no fence.proxy.async between them", "fills scale factors"),
    Mutant("scaled", 3, UNFENCED, "copies", "with no fence.proxy.async between them", "fills scale factors"),
    Mutant("scaled", 4, DESCRIPTOR, "multiplies", "whose scale factor IDs (bits 29 and 30 of A, 4 and 5 of B)"),
    Mutant("scaled", 5, DESCRIPTOR, "mistypes", "whose type of scale factors (bit 23) its kind does not have"),
    Mutant("scaled", 6, RACE, "peeks", "has yet to write: have it tracked by tcgen05.commit", "copies"),
    Mutant("scaled", 7, RACE, "clears scale factors", "has yet to write: wait for the mbarrier of its", "copies"),
    Mutant("scaled", 8, RACE, "fills scale factors", "the mbarrier of its tcgen05.commit has to come first", "copies"),
    Mutant("scaled", 9, BOUNDS, "copies", "column 48 of tensor memory, from lane 0 on, which is not allocated"),
    Mutant("scaled", 10, DESCRIPTOR, "copies", "whose bits 46 to 48 are not 0b001: is it one of wgmma?"),
    Mutant("scaled", 11, UNWRITTEN, "multiplies", "column 20 of tensor memory, from lane 0 on, which nothing has"),
    Mutant("scaled", 12, RACE, "copies elsewhere", "only the thread that issues a tcgen05.cp may go on", "copies"),
    Mutant("scaled", 13, DESCRIPTOR, "multiplies", "with M = 64 and N = 16"),
    Mutant("scaled", 14, TENSOR, "copies", "the lane of its address is not a multiple"),
    Mutant("slide", 1, TENSOR, "shifts", "the lane of its address is not a multiple"),
    Mutant(
        "slide",
        2,
        RACE,
        "shifts elsewhere",
        "has yet to read: wait for the mbarrier of its tcgen05.commit",
        "multiplies",
    ),
    Mutant("slide", 3, RACE, "shifts again", "follow a tcgen05.shift without a wait for a tcgen05.commit", "shifts"),
    Mutant("slide", 4, RACE, "copies all", "only products and a tcgen05.cp.4x256b of the same thread", "shifts"),
    Mutant("slide", 5, RACE, "shifts", "a tcgen05.shift does not follow a tcgen05.cp in order", "copies early"),
    Mutant("slide", 6, RACE, "peeks", "has yet to write: have it tracked by tcgen05.commit", "shifts"),
    Mutant("slide", 7, BOUNDS, "shifts", "column 32 of tensor memory, from lane 0 on, which is not allocated"),
    Mutant("slide", 8, RACE, "multiplies", "its warp has to execute tcgen05.wait::st first", "stores"),
    Mutant("slide", 9, UNFENCED, "multiplies", "tcgen05.fence::after_thread_sync is missing", "stores"),
    Mutant("slide", 10, TENSOR, "shifts both", "with cta_group::2 in a block that is none of a pair"),
    Mutant("slide_pair", 1, BOUNDS, "shifts", "of tensor memory of block 1, from lane 0 on, which is not allocated"),
    Mutant("slide_pair", 2, RACE, "loads", "without having waited for the tcgen05.commit that tracks", "shifts"),
    Mutant("reuse", 1, RACE, "stages", "the mbarrier of its tcgen05.commit has to come first", "multiplies"),
    Mutant("reuse", 2, RACE, "stages", "may still be writing: wait for its mbarrier first", "loads ahead"),
    Mutant("reuse", 3, RACE, "stages", "the mbarrier of its tcgen05.commit has to come first", "multiplies"),
    Mutant("loads", 1, UNWRITTEN, "stores", "may still be writing: wait for its mbarrier first", "fetches"),
    Mutant("loads", 2, None, "promises", "promises 2,048 bytes, and 1,024 have landed", "waits for both"),
    Mutant("loads", 3, None, "leaves", "1,024 bytes have landed that were not promised"),
    Mutant("pair", 6, TENSOR, "allocates both", "tcgen05.dealloc is missing before it exits"),
)


def line_of(kernel: str, mark: str) -> int:
    """Return the number of the line that ends in this comment in the source of a kernel."""
    lines = (HEAD + KERNELS[kernel]).splitlines()
    (line,) = (number for number, line in enumerate(lines, 1) if line.endswith(f"// {mark}"))
    return line
