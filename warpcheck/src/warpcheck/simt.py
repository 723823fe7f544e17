"""The PTX machine: run the PTX that compilers emit on a CPU, and count what a GPU would have done.

    module = simt.load(ptx)
    launch = module.launch("softmax", grid=(8,), block=(128,), args=[x.data_ptr(), 1000], buffers=[simt.Buffer(...)])
    launch.lines[14].sectors_per_request

It is a direct-threaded interpreter whose opcodes are compiled per shape: each instruction becomes a row with the
address of a compiled function, which executes it for the 32 lanes of a warp. Memory accesses call checks that are
compiled from Python: bounds, initialization, races by vector clocks, sectors and wavefronts.

Read it in this order; a module imports only from lines above its own, as import-linter enforces:

    errors               the exceptions that end a launch
    threads              how many threads run the blocks of a launch
    target               the limits of an architecture
    layout               the numbers that generated code, checks and host share
    ptx                  the text of a kernel as records
    index_overflow       loops whose index is too narrow for their bound
    native               the subset of Python that is compiled to machine code
    variants             which modifiers an opcode may have
    op                   the record of an instruction: its variants, operands, and the lanes it waits for
    tensor_map           the descriptor of a tensor for tensor copies
    isa_availability     which architecture has an instruction first
    instruction_classes  the class of an instruction
    lowered_kernel       the result of lowering a kernel
    counters             the counters of a launch, by source line
    events               the events of the warps of one block, in order
    runtime              a launch while it runs: records, checks, races, counters, schedule, faults
    lower                from a kernel's records to LLVM IR: blocks, registers, divergence
    isa                  the instructions, one family in a file
    elf                  reading a cubin
    assembler            ptxas and nvdisasm: what a kernel becomes on a GPU
    sass_access          how the hardware executes the accesses of PTX
    codec                a compiled kernel as bytes
    compiler             machine code and its cache
    occupancy            warps on a multiprocessor
    machine              the interface: load, launch

Limits: recursion is refused; there are no caches, so no hit rates and no times. Loads and stores count as ptxas merges
them; what ptxas moves or predicates still counts as the PTX says.
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
