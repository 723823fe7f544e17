"""Plant each kind of fault in a kernel, and check that the machine finds it there and not in the corrected kernel.

A checker that prints nothing may have checked nothing. `warpcheck selftest` is the positive control, for the compilers
that are installed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import warpcheck
from warpcheck.findings import KERNEL_ERRORS

__all__ = ["CUDA", "PlantedFault", "PlantedKernel", "SelftestOutcome", "languages", "run_selftest", "try_planted"]

_LENGTH = 64


@dataclass(frozen=True)
class PlantedFault:
    """A kernel of CUDA C++ with a fault, and its correction.

    The kernel takes `int* x, int* out, int n`: 64 zeros, 64 integers that nothing has written, and 64.

    Attributes:
        fault: The name of the exception's class.
        mistake: The mistake, in a few words.
        body: The statements of the kernel, with `FAULT` in place of the statement that is wrong.
        wrong: The statement that is wrong.
        right: Its correction.
        line: A part of the line where the machine finds the fault; that of `wrong` if empty.
        blocks: The blocks of the grid.
        threads: The threads of a block.
        arch: The architecture.
    """

    fault: str
    mistake: str
    body: str
    wrong: str
    right: str
    line: str = ""
    blocks: int = 1
    threads: int = _LENGTH
    arch: str = "sm_80"

    def source(self, statement: str) -> str:
        """Return the text of the kernel with one of the two statements."""
        return f"__global__ void planted(int* x, int* out, int n) {{\n{self.body.replace('FAULT', statement)}\n}}\n"

    def launch_wrong(self) -> None:
        """Compile and launch the kernel with the mistake."""
        self._launch(self.wrong)

    def launch_right(self) -> None:
        """Compile and launch the corrected kernel."""
        self._launch(self.right)

    def _launch(self, statement: str) -> None:
        import torch

        kernel = warpcheck.cuda.kernel(self.source(statement), "planted")
        with warpcheck.gpu(self.arch):
            x = torch.zeros(_LENGTH, dtype=torch.int32)
            out = torch.empty(_LENGTH, dtype=torch.int32)
            kernel[self.blocks, self.threads](x, out, _LENGTH)

    @property
    def expected_line(self) -> int:
        """Return the number of the line where the machine has to find the fault."""
        lines = self.source(self.wrong).splitlines()
        (number,) = (number for number, line in enumerate(lines, 1) if (self.line or self.wrong) in line)
        return number


_BULK_STORE = """\
    __shared__ alignas(16) int tile[64];
    tile[threadIdx.x] = threadIdx.x;
    FAULT
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned address = __cvta_generic_to_shared(tile);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], SIZE;"
            :: "l"(out), "r"(address) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }"""
_FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
_WGMMA = """\
    __shared__ alignas(1024) int tile[1024];
    for (int i = threadIdx.x; i < 1024; i += 128) tile[i] = 0;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    unsigned long long a = (__cvta_generic_to_shared(tile) & 0x3ffff) >> 4 | 8ull << 16 | 16ull << 32;
    FAULT
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(a));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (d[0] != 0) out[threadIdx.x % 64] = 1;"""

_TENSOR_MEMORY = """\
    __shared__ unsigned base;
    unsigned target = __cvta_generic_to_shared(&base);
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" :: "r"(target) : "memory");
    __syncthreads();
    out[threadIdx.x] = base;
    FAULT"""

# A kernel for each kind of fault. The course's and the package's tests plant many more.
CUDA = (
    PlantedFault(
        "OutOfBounds",
        "a bound that is one too large",
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    FAULT",
        "if (i <= n) out[i] = 1;",
        "if (i < n) out[i] = 1;",
        blocks=2,
    ),
    PlantedFault(
        "MisalignedAccess",
        "a vector load at an odd index",
        "    FAULT\n    out[threadIdx.x] = pair.x - pair.y;",
        "int2 pair = *reinterpret_cast<int2*>(x + threadIdx.x % 2);",
        "int2 pair = *reinterpret_cast<int2*>(x + threadIdx.x / 2 * 2);",
    ),
    PlantedFault(
        "Uninitialized",
        "an output that is read before it is written",
        "    FAULT",
        "out[threadIdx.x] += 1;",
        "out[threadIdx.x] = 1;",
    ),
    PlantedFault(
        "Race",
        "a barrier that is missing",
        "    __shared__ int tile[64];\n    tile[threadIdx.x] = x[threadIdx.x];\n    FAULT\n"
        "    out[threadIdx.x] = tile[n - 1 - threadIdx.x];",
        "",
        "__syncthreads();",
        line="tile[n - 1",
    ),
    PlantedFault(
        "Race",
        "a sum of several blocks without an atomic",
        "    FAULT",
        "if (threadIdx.x == 0) x[0] += blockIdx.x;",
        "if (threadIdx.x == 0) atomicAdd(x, blockIdx.x);",
        blocks=4,
    ),
    PlantedFault(
        "BarrierDivergence",
        "a barrier that half of the block skips",
        "    FAULT\n    out[threadIdx.x] = 1;",
        "if (threadIdx.x < 32) __syncthreads();",
        "__syncthreads();",
    ),
    PlantedFault(
        "InvalidWarpMask",
        "a shuffle mask with lanes that are elsewhere",
        "    int value = x[threadIdx.x];\n    if (threadIdx.x % 32 < 16) {\n        FAULT\n    }\n"
        "    out[threadIdx.x] = value;",
        "value += __shfl_down_sync(0xffffffff, value, 8);",
        "value += __shfl_down_sync(0x0000ffff, value, 8, 16);",
    ),
    PlantedFault(
        "DeviceAssertion",
        "an assertion that fails in one thread",
        "    FAULT\n    out[threadIdx.x] = 1;",
        "assert(threadIdx.x < 63);",
        "assert(threadIdx.x < 64);",
    ),
    PlantedFault(
        "Trap",
        "a trap that one thread reaches",
        "    FAULT\n    out[threadIdx.x] = 1;",
        "if (threadIdx.x == 63) __trap();",
        "if (threadIdx.x == 64) __trap();",
    ),
    PlantedFault(
        "Deadlock",
        "a wait for a flag that no thread sets",
        "    volatile int* flag = x;\n    FAULT\n    out[threadIdx.x] = 1;",
        "while (flag[0] == 0) {}",
        "while (flag[0] != 0) {}",
    ),
    PlantedFault(
        "MissingFence",
        "a bulk copy without a proxy fence before it",
        _BULK_STORE.replace("SIZE", "256"),
        "",
        _FENCE,
        line="cp.async.bulk.global",
        arch="sm_90a",
    ),
    PlantedFault(
        "InvalidCopy",
        "a bulk copy of 24 bytes",
        _BULK_STORE.replace("FAULT", _FENCE).replace("SIZE", "FAULT"),
        "24",
        "256",
        line="cp.async.bulk.global",
        arch="sm_90a",
    ),
    PlantedFault(
        "InvalidDescriptor",
        "a matrix descriptor with a reserved bit",
        _WGMMA,
        "a |= 1 << 14;",
        "",
        line="wgmma.mma_async",
        threads=128,
        arch="sm_90a",
    ),
    PlantedFault(
        "InvalidTensorMemory",
        "tensor memory that is not freed",
        _TENSOR_MEMORY,
        "",
        'if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" :: "r"(base));',
        line="tcgen05.alloc",
        arch="sm_100a",
    ),
)


@dataclass(frozen=True)
class SelftestOutcome:
    """The outcome of one planted fault.

    Attributes:
        fault: The name of the exception's class.
        language: "CUDA C++" or "Triton".
        mistake: The mistake, in a few words.
        problem: Why the test failed; empty if the fault was found, in its line, and the correction is clean.
        line: The line where the fault was found.
        seconds: The time of both launches, with compilation.
    """

    fault: str
    language: str
    mistake: str
    problem: str
    line: int
    seconds: float


class PlantedKernel(Protocol):
    """A fault that is planted in one of the languages."""

    @property
    def fault(self) -> str: ...

    @property
    def mistake(self) -> str: ...

    @property
    def expected_line(self) -> int: ...

    def launch_wrong(self) -> None:
        """Compile and launch the kernel with the mistake."""

    def launch_right(self) -> None:
        """Compile and launch the corrected kernel."""


def languages() -> dict[str, Sequence[PlantedKernel]]:
    """Return the planted faults of each language whose compiler is installed."""
    planted: dict[str, Sequence[PlantedKernel]] = {}
    if find_spec("torch") is None:
        return planted
    with contextlib.suppress(ModuleNotFoundError):
        if find_spec("cuda.bindings.nvrtc") is not None:
            planted["CUDA C++"] = CUDA
    if find_spec("triton") is not None:
        from warpcheck.selftest_triton import TRITON

        planted["Triton"] = TRITON
    return planted


def run_selftest() -> Iterator[SelftestOutcome]:
    """Yield the outcome of each planted fault, for each language whose compiler is installed."""
    for language, planted in languages().items():
        for fault in planted:
            yield try_planted(fault, language)


def try_planted(planted: PlantedKernel, language: str) -> SelftestOutcome:
    """Launch both versions of a planted fault, and return the outcome.

    Any exception is an outcome: the self-test has to describe an installation that does not work, and not to end there.
    """
    started = time.perf_counter()
    line = 0
    problem = ""
    try:
        planted.launch_wrong()
        problem = "the fault was not found"
    except Exception as error:
        line = getattr(error, "line", 0)
        if type(error).__name__ != planted.fault:
            problem = f"found {type(error).__name__} instead: {error}"
        elif line != planted.expected_line:
            problem = f"found in line {line} instead of line {planted.expected_line}"
    try:
        planted.launch_right()
    except KERNEL_ERRORS as error:
        problem = problem or f"the corrected kernel has a fault: {error}"
    except Exception as error:
        problem = problem or f"the corrected kernel does not run: {type(error).__name__}: {error}"
    return SelftestOutcome(planted.fault, language, planted.mistake, problem, line, time.perf_counter() - started)
