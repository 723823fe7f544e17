"""The rules of tensor memory and of the tensor core's descriptors, and what is wrong where one is broken.

PTX ISA manual, section 9.7.16, "TensorCore 5th Generation Family Instructions". No GPU has confirmed them.
"""

from __future__ import annotations

import enum

__all__ = ["CONFLICTS", "RULES", "TensorRule"]


class TensorRule(enum.IntEnum):
    """A rule that an instruction of tcgen05 breaks; in ``launch.fault_detail``."""

    __str__ = int.__repr__  # as in layout.Code

    NONE = 0
    # Tensor memory and its allocation: 9.7.16.1 and 9.7.16.7.
    COLUMNS = 1
    EXHAUSTED = 2
    RELINQUISHED = 3
    NOT_ALLOCATED = 4
    WRONG_SIZE = 5
    NOT_FREED = 6
    FREED_IN_USE = 7
    OUTSIDE = 8
    LANE_QUARTER = 9
    LANE_START = 10
    DIVERGENT_ADDRESS = 11
    UNWRITTEN = 12
    # The order of asynchronous instructions: 9.7.16.6.
    READ_BEFORE_COMMIT = 13
    WRITTEN_BEFORE_COMMIT = 14
    NOT_PIPELINED = 15
    COPY_NOT_PIPELINED = 16
    SHIFT_NOT_PIPELINED = 17
    COPY_BEFORE_SHIFT = 18
    OPERAND_OVERWRITTEN = 19
    STORE_NOT_WAITED = 20
    LOAD_NOT_WAITED = 21
    UNORDERED = 22
    COMMIT_NOT_WAITED = 23
    FENCE_BEFORE = 24
    FENCE_AFTER = 25
    # Descriptors: 9.7.16.4.
    SHARED_RESERVED = 26
    SHARED_VERSION = 27
    SHARED_SWIZZLE = 28
    INSTRUCTION_RESERVED = 29
    INSTRUCTION_TYPES = 30
    INSTRUCTION_SHAPE = 31
    SPARSE = 32
    MAJOR = 33
    NARROW_MAJOR = 34
    SCALE_TYPE = 35
    SCALE_ID = 36
    NO_PAIR = 37


# The rules about two accesses.
CONFLICTS = frozenset(
    {TensorRule.FREED_IN_USE, *map(TensorRule, range(TensorRule.READ_BEFORE_COMMIT, TensorRule.SHARED_RESERVED))}
)

_WAIT = "wait for the mbarrier of its tcgen05.commit first"
_SHARED = "gives tcgen05 the descriptor {value:#018x}"
_INSTRUCTION = "gives tcgen05.mma the instruction descriptor {value:#010x}"

# Messages about the rules. ``other`` is the instruction that conflicts, with its line and thread.
RULES = {
    TensorRule.COLUMNS: "allocates {value} columns of tensor memory: it has to be a power of two from 32 to 512",
    TensorRule.EXHAUSTED: "allocates {value} columns of tensor memory, more than the block has left: free some first "
    "(tcgen05.dealloc), or allocate fewer. On a GPU it waits for ever",
    TensorRule.RELINQUISHED: "allocates tensor memory after tcgen05.relinquish_alloc_permit, which gave up the right",
    TensorRule.NOT_ALLOCATED: "frees {place}, where no allocation begins: pass the address that tcgen05.alloc has "
    "stored, and free it once",
    TensorRule.WRONG_SIZE: "frees {place} with {value} columns, and it was allocated with another number",
    TensorRule.NOT_FREED: "allocates tensor memory that its block never frees: tcgen05.dealloc is missing before it "
    "exits",
    TensorRule.FREED_IN_USE: "frees {place}, which {other} still uses: wait for it first, and for the other warps at "
    "a barrier",
    TensorRule.OUTSIDE: "{verb} {place}, which is not allocated (tcgen05.alloc) or was freed",
    TensorRule.LANE_QUARTER: "{verb} {place}, and warp {warp} can access lanes {first} to {last} alone: add 32 times "
    "the warp's number modulo 4 to the lane of the address, which has bits 16 to 31",
    TensorRule.LANE_START: "{verb} {place}: the lane of its address is not a multiple of what its shape takes",
    TensorRule.DIVERGENT_ADDRESS: "gives tcgen05 an address that is not that of the other lanes: a warp has one",
    TensorRule.UNWRITTEN: "{verb} {place}, which nothing has written",
    TensorRule.READ_BEFORE_COMMIT: "{verb} {place}, which {other} has yet to write: have it tracked by "
    "tcgen05.commit, by the thread that issues it, and wait for the mbarrier of the commit first",
    TensorRule.WRITTEN_BEFORE_COMMIT: "{verb} {place}, which {other} has yet to write: " + _WAIT,
    TensorRule.NOT_PIPELINED: "{verb} {place}, which {other} has yet to write: only products of one thread with the "
    "same accumulator, shape and kind follow each other without a wait for a tcgen05.commit",
    TensorRule.COPY_NOT_PIPELINED: "{verb} {place}, which {other} has yet to write: only the thread that issues a "
    "tcgen05.cp may go on without a wait for a tcgen05.commit",
    TensorRule.SHIFT_NOT_PIPELINED: "{verb} {place}, which {other} has yet to write: only products and a "
    "tcgen05.cp.4x256b of the same thread follow a tcgen05.shift without a wait for a tcgen05.commit",
    TensorRule.COPY_BEFORE_SHIFT: "{verb} {place}, which {other} has yet to write: a tcgen05.shift does not follow a "
    "tcgen05.cp in order; wait for a tcgen05.commit of the copy, or multiply with what it has copied first",
    TensorRule.OPERAND_OVERWRITTEN: "{verb} {place}, which {other} has yet to read: " + _WAIT,
    TensorRule.STORE_NOT_WAITED: "{verb} {place} while {other} may still be in flight: its warp has to execute "
    "tcgen05.wait::st first",
    TensorRule.LOAD_NOT_WAITED: "{verb} {place} while {other} may still be in flight: its warp has to execute "
    "tcgen05.wait::ld first",
    TensorRule.UNORDERED: "{verb} {place} with no barrier between it and {other}",
    TensorRule.COMMIT_NOT_WAITED: "{verb} {place} without having waited for the tcgen05.commit that tracks {other}",
    TensorRule.FENCE_BEFORE: "{verb} {place} behind {other}: its warp needs tcgen05.fence::before_thread_sync in "
    "front of the barrier",
    TensorRule.FENCE_AFTER: "{verb} {place} behind {other}: tcgen05.fence::after_thread_sync is missing behind the "
    "barrier",
    TensorRule.SHARED_RESERVED: _SHARED + ", in which bits are set that mean nothing",
    TensorRule.SHARED_VERSION: _SHARED + ", whose bits 46 to 48 are not 0b001: is it one of wgmma?",
    TensorRule.SHARED_SWIZZLE: _SHARED + ", whose swizzle mode (bits 61 to 63) the instruction does not have: 0 none, "
    "2 128 bytes, 4 64 bytes, 6 32 bytes; 1, 128 bytes in atoms of 32, is for MN-major operands",
    TensorRule.INSTRUCTION_RESERVED: _INSTRUCTION + ", in which bits are set that mean nothing here",
    TensorRule.INSTRUCTION_TYPES: _INSTRUCTION + ", whose types its kind does not have",
    TensorRule.INSTRUCTION_SHAPE: _INSTRUCTION + " with M = {m} and N = {n}: M is 64 with N a multiple of 8, or 128 "
    "with N a multiple of 16, up to 256; with scale factors, 128 with N a multiple of 8; of two blocks, 128 or 256",
    TensorRule.SPARSE: _INSTRUCTION + " of a sparse product",
    TensorRule.NARROW_MAJOR: _INSTRUCTION + " with an MN-major operand of 4 or 6 bits",
    TensorRule.SCALE_TYPE: _INSTRUCTION + ", whose type of scale factors (bit 23) its kind does not have",
    TensorRule.SCALE_ID: _INSTRUCTION
    + ", whose scale factor IDs (bits 29 and 30 of A, 4 and 5 of B) are not possible: "
    "0 with four scale factors, 0 or 2 with two",
    TensorRule.NO_PAIR: "runs tcgen05 with cta_group::2 in a block that is none of a pair: launch clusters of "
    "an even number of blocks along x",
    TensorRule.MAJOR: _INSTRUCTION + " with an MN-major operand in tensor memory",
}
