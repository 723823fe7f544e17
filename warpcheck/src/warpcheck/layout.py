"""The numbers that generated code, the checks and the host share."""

from __future__ import annotations

import enum

__all__ = [
    "ASIDE",
    "BANKS",
    "COPIES",
    "EVERYTHING",
    "FENCES",
    "LANES",
    "NOWHERE",
    "OVERWRITTEN",
    "PENDING",
    "POSITION",
    "READS",
    "RESERVED",
    "ROWS",
    "SCRATCH",
    "SECTOR",
    "SERVICES",
    "UNFENCED",
    "UNWRITTEN",
    "USED",
    "WAITING",
    "WRITTEN",
    "Access",
    "AtomicStrategy",
    "Space",
    "Status",
]

LANES = 32
SECTOR = 32  # bytes that global memory moves at once
BANKS = 32  # of shared memory, 4 bytes wide
ROWS = 40  # rows of a warp's operands; a row has 32 bits of each lane
COPIES = 512  # the most cp.async of a warp in flight
READS = 256  # the most operands of wgmma of a warp in flight
FENCES = 16  # fences of the asynchronous proxy that are remembered for a warp
POSITION = 20  # bits of an instruction's number in its block, where it is packed with the block's number
UNFENCED, USED, OVERWRITTEN = range(3)  # hazards of a register of wgmma; see lower.wgmma_hazards
EVERYTHING = 1 << 20  # the argument of a wait after which no copy is in flight
# Program counters of lanes; see lower.warp_control. ASIDE and WAITING are flags beside the number of a basic block.
ASIDE = 1 << 29  # lets the other lanes of the warp run first
WAITING = 1 << 30  # waits for other lanes
NOWHERE = (1 << 31) - 1  # has left the kernel
# The state of a byte; 0 was written before the launch. The low bit means that it may not be read: runtime.byte_states.
UNWRITTEN = 1
WRITTEN = 2  # by a kernel
PENDING = 3  # an asynchronous copy has yet to write it
RESERVED = "reserved_smem_offset_1"  # a special register: the offset of shared memory of the system, initially zeros
SCRATCH = "global_smem"  # Triton's shared memory, which only its compiler lays out and writes
SERVICES = ("vprintf", "__assertfail", "malloc", "free")  # functions that the host provides


class Code(enum.IntEnum):
    """A number that generated code contains."""

    __str__ = int.__repr__  # llvmlite writes constants with str, which gives the name before Python 3.11


class Status(Code):
    """Why a warp stopped running."""

    READY = 0  # may run
    EXITED = 1
    BARRIER = 2  # waits at the barrier that the warp's record names
    PREEMPTED = 3  # its time slice is used up
    ARRIVED = 4  # has arrived at a barrier without waiting for it
    SUSPENDED = 5  # waits in an instruction until something happens: an arrival, a copy, registers that are released
    FAULT = 6  # the launch's record says what and where
    STUCK = 7  # every lane waits for another one
    HOST = 8  # asks for a service of the host (printf, assert, malloc)
    MISCOUNTED = 9  # came to a barrier whose phase has another thread count


class Space(Code):
    """The state space of an access. GENERIC is resolved lane by lane."""

    GENERIC = 0
    GLOBAL = 1
    SHARED = 2
    LOCAL = 3
    CONST = 4
    PARAM = 5
    CLUSTER = 6  # shared memory of any block of the cluster
    TENSOR = 7  # tensor memory of the block


class Access(Code):
    """The kind of an access."""

    LOAD = 0
    STORE = 1
    ATOMIC = 2


class AtomicStrategy(Code):
    """How the hardware executes an atomic operation for the lanes of a warp."""

    TURNS = 0  # those that meet at a word take turns
    ELECTED = 1  # one lane does the operation of all: ptxas knows that the address is the same
    INCREMENT = 2  # in shared memory, those that meet at a word are counted and added at once: ATOMS.POPC.INC
    SWAP = 3  # a compare-and-swap in shared memory takes two wavefronts
    SPIN = 4  # a loop of a load and a compare-and-swap, until each lane has had its turn: floats in shared memory
