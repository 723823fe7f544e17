"""The PTX machine: runs the PTX that real compilers emit, on a CPU, and counts what a GPU would have done.

    module = simt.load(ptx)
    launch = module.launch("softmax", grid=(8,), block=(128,), args=[x.data_ptr(), 1000], buffers=[simt.Buffer(...)])
    launch.lines[14].sectors_per_request

Read it in this order:

    ptx            the text of a kernel as records
    forms          which instructions there are
    flow           calls expanded, basic blocks, live registers
    emitter        a register as a vector of 32 lanes, masks, memory
    lower          program counters of lanes: divergence, waiting, the loop that runs a warp
    arithmetic, bitwise, comparison, conversion, transfers, collectives, tensor, wmma, instructions
                   what each instruction does
    layout         the records in memory that generated code and the checks share
    memory, races, sync, counters
                   what happens at every access: bounds, unwritten memory, races, sectors, wavefronts
    schedule       thread blocks, warps, barriers
    native         how the last five, written in Python, become machine code
    execution, complaints
                   a launch seen from the host, and sentences about what a thread did wrong
    compiler, machine
                   machine code and its cache; the interface
    occupancy, picture
                   warps on a multiprocessor; a drawing of a launch

What it does not do: thread blocks run one after another, so a block cannot wait for a later one; recursion and calls
through pointers are refused; caches, and so hit rates and times, do not exist. ptxas is not run: what it would merge,
move or predicate still counts as the PTX says.
"""

from kernelpath.simt.compiler import warm_up
from kernelpath.simt.counters import AccessSample, LineCounters
from kernelpath.simt.errors import Fault, FaultKind, TimedOut, Unsupported
from kernelpath.simt.machine import Kernel, Launch, Module, Param, load
from kernelpath.simt.run.buffers import Buffer, Memory

__all__ = [
    "AccessSample",
    "Buffer",
    "Fault",
    "FaultKind",
    "Kernel",
    "Launch",
    "LineCounters",
    "Memory",
    "Module",
    "Param",
    "TimedOut",
    "Unsupported",
    "load",
    "warm_up",
]
