"""The PTX machine: runs the PTX that real compilers emit, on a CPU, and counts what a GPU would have done.

    module = simt.load(ptx)
    launch = module.launch("softmax", grid=(8,), block=(128,), args=[x.data_ptr(), 1000], buffers=[simt.Buffer(...)])
    launch.lines[14].sectors_per_request

Read it in this order; a module imports only from lines above its own, which a test holds to:

    errors       what ends a launch early
    target       what an architecture can do
    layout       the numbers that generated code, checks and host share
    ptx          the text of a kernel as records
    narrow       loops whose index is too narrow for their bound
    native       Python functions that become machine code
    forms        which modifiers an opcode may have
    op           what is known of an instruction: its forms, operands, what it waits for
    tensor_map   the descriptor of a tensor for tensor copies
    since        which architecture has an instruction first
    lowered      what lowering a kernel gives
    classes      what kind of instruction one is
    counters     what a launch did, by source line
    events       what the warps of one block did, in their order
    run          a launch while it runs: records, checks, races, counts, schedule, faults
    lower        from a kernel's records to LLVM IR: blocks, registers, divergence
    isa          the instructions, a family a file
    elf          what is read in a cubin
    assembler    ptxas and nvdisasm: what a kernel becomes on a GPU
    served       which accesses of the hardware serve those of PTX
    codec        a compiled kernel as bytes
    compiler     machine code and its cache
    occupancy    warps on a multiprocessor
    machine      the interface: load, launch

What it does not do: recursion is refused; caches, and so hit rates and times, do not exist. Loads and stores count as
ptxas merges them; what it moves or predicates still counts as the PTX says.
"""

from warpcheck.compiler import warm_up
from warpcheck.counters import AccessSample, LineCounters
from warpcheck.errors import Deadlock, Fault, FaultKind, Rejected, TimedOut, Unsupported
from warpcheck.events import Event, EventKind, recorded
from warpcheck.machine import Kernel, Launch, Module, Param, load
from warpcheck.runtime.arrays import FAR, zeroed
from warpcheck.runtime.buffers import Buffer, Memory
from warpcheck.target import TARGETS, Target

__all__ = [
    "FAR",
    "TARGETS",
    "AccessSample",
    "Buffer",
    "Deadlock",
    "Event",
    "EventKind",
    "Fault",
    "FaultKind",
    "Kernel",
    "Launch",
    "LineCounters",
    "Memory",
    "Module",
    "Param",
    "Rejected",
    "Target",
    "TimedOut",
    "Unsupported",
    "load",
    "recorded",
    "warm_up",
    "zeroed",
]
