"""The PTX machine: runs the PTX that real compilers emit, on a CPU, and counts what a GPU would have done."""

from kernelpath.simt.buffers import Buffer, Memory
from kernelpath.simt.compiler import warm_up
from kernelpath.simt.counters import AccessSample, LineCounters
from kernelpath.simt.errors import Fault, FaultKind, TimedOut, Unsupported
from kernelpath.simt.machine import Kernel, Launch, Module, Param, load

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
