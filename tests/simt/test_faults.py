"""Planted bugs: each is found, with its kind, its line and a sentence that says what is wrong.

The line with the bug carries the comment ``// here``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from conftest import aligned, buffer, compile_ptx

from kernelpath import simt
from kernelpath.simt import FaultKind

N = 1000  # floats in a, b, c


@dataclass(frozen=True)
class Bug:
    name: str
    kind: FaultKind
    message: str
    body: str
    block: int = 128
    grid: int = 1
    fresh: tuple[int, ...] = ()

    @property
    def source(self) -> str:
        return f"__global__ void kernel(float* a, float* b, float* c, int n) {{\n{PROLOGUE}\n{self.body}\n}}"

    @property
    def line(self) -> int:
        return next(n for n, line in enumerate(self.source.splitlines(), 1) if "// here" in line)


PROLOGUE = """int t = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
__shared__ float s[128];
extern __shared__ float d[];"""

BUGS = [
    Bug(
        "no_guard",
        FaultKind.OUT_OF_BOUNDS,
        r"reads 4 bytes past the end of a \(1000 float32\)",
        """
        c[i] = a[i]; // here
        """,
        grid=8,
    ),
    Bug(
        "guard_off_by_one",
        FaultKind.OUT_OF_BOUNDS,
        "writes 4 bytes past the end of c",
        """
        if (i <= n)
        c[i] = 1; // here
        """,
        grid=8,
    ),
    Bug(
        "before_the_beginning",
        FaultKind.OUT_OF_BOUNDS,
        "4 bytes before the beginning of a",
        """
        c[t] = a[t - 1]; // here
        """,
    ),
    Bug(
        "bytes_for_elements",
        FaultKind.OUT_OF_BOUNDS,
        "past the end of c",
        """
        if (i < n)
        c[4 * i] = 0; // here
        """,
        grid=8,
    ),
    Bug(
        "vector_tail",
        FaultKind.OUT_OF_BOUNDS,
        "writes 16 bytes past the end of c",
        """
        if (4 * i < n + 1)
        ((float4*)c)[i] = make_float4(0, 0, 0, 0); // here
        """,
        grid=8,
    ),
    Bug(
        "null_pointer",
        FaultKind.OUT_OF_BOUNDS,
        "where no tensor is",
        """
        float* p = (float*)(long long)(n - 1000);
        p[t] = 1; // here
        """,
    ),
    Bug(
        "int_overflow",
        FaultKind.OUT_OF_BOUNDS,
        "c",
        """
        int far = 0x40000000 * (t + 1);
        c[far] = 1; // here
        """,
    ),
    Bug(
        "shared_too_small",
        FaultKind.OUT_OF_BOUNDS,
        r"past the end of shared memory \(512 bytes\)",
        """
        s[t + 1] = a[t]; // here
        __syncthreads();
        c[t] = s[t];
        """,
    ),
    Bug(
        "dynamic_shared_forgotten",
        FaultKind.OUT_OF_BOUNDS,
        r"past the end of shared memory \(0 bytes\)",
        """
        d[t] = a[t]; // here
        """,
    ),
    Bug(
        "local_array",
        FaultKind.OUT_OF_BOUNDS,
        "past the end of local memory",
        """
        float l[8];
        for (int k = 0; k < 8; k++) l[k] = k;
        c[t] = l[(t + n) % 9]; // here
        """,
    ),
    Bug(
        "misaligned_vector",
        FaultKind.MISALIGNED,
        r"reads 16 bytes at a\[1\], which is not a multiple of 16",
        """
        float4 v = *(float4*)(a + t); // here
        c[t] = v.x + v.y + v.z + v.w;
        """,
    ),
    Bug(
        "misaligned_float",
        FaultKind.MISALIGNED,
        r"a\[0\] \+ 1 bytes",
        """
        c[t] = *(float*)((char*)a + t); // here
        """,
    ),
    Bug(
        "output_read",
        FaultKind.UNINITIALIZED,
        r"reads 4 bytes at c\[0\], which nothing has written",
        """
        c[t] += a[t]; // here
        """,
        fresh=(2,),
    ),
    Bug(
        "shared_not_filled",
        FaultKind.UNINITIALIZED,
        r"reads 4 bytes at s \+ 508 bytes, which nothing has written",
        """
        if (t < 64) s[t] = a[t];
        __syncthreads();
        c[t] = s[127 - t]; // here
        """,
    ),
    Bug(
        "local_not_filled",
        FaultKind.UNINITIALIZED,
        "nothing has written",
        """
        float l[8];
        l[t % 4] = 1;
        c[t] = l[t % 8]; // here
        """,
    ),
    Bug(
        "copy_not_awaited",
        FaultKind.UNINITIALIZED,
        "nothing has written",
        """
        unsigned int to = __cvta_generic_to_shared(s + t);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(a + t));
        asm volatile("cp.async.commit_group;");
        c[t] = s[t]; // here
        """,
    ),
    Bug(
        "copy_of_the_newest_group_not_awaited",
        FaultKind.UNINITIALIZED,
        r"reads 4 bytes at s \+ 256 bytes, which nothing has written",
        """
        if (t < 32) {
            for (int k = 0; k < 3; k++) {
                unsigned int to = __cvta_generic_to_shared(s + 32 * k + t);
                asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(a + t));
                asm volatile("cp.async.commit_group;");
            }
            asm volatile("cp.async.wait_group 1;");
            c[t] = s[t] + s[32 + t];
            c[64 + t] = s[64 + t]; // here
        }
        """,
    ),
    Bug(
        "missing_barrier",
        FaultKind.RACE,
        r"which thread \(\d+, 0, 0\) touches with no barrier between them",
        """
        s[t] = a[t];
        c[t] = s[127 - t]; // here
        """,
    ),
    Bug(
        "barrier_missing_in_a_loop",
        FaultKind.RACE,
        "no barrier",
        """
        for (int k = 0; k < 2; k++) {
            s[t] = a[t] + k;
            __syncthreads();
            c[t] = s[127 - t]; // here
        }
        """,
    ),
    Bug(
        "reduction_without_barrier",
        FaultKind.RACE,
        "no barrier",
        """
        s[t] = a[t];
        __syncthreads();
        for (int o = 64; o; o >>= 1) {
            if (t < o) s[t] += s[t + o]; // here
        }
        if (t == 0) c[0] = s[0];
        """,
    ),
    Bug(
        "sum_without_atomic",
        FaultKind.RACE,
        r"c\[0\]",
        """
        c[0] += a[t]; // here
        """,
    ),
    Bug(
        "blocks_write_the_same",
        FaultKind.RACE,
        r"c\[0\]",
        """
        c[t] = blockIdx.x; // here
        """,
        grid=2,
    ),
    Bug(
        "in_place_stencil",
        FaultKind.RACE,
        r"a\[",
        """
        if (i > 0 && i < n)
        a[i] = a[i - 1]; // here
        """,
        grid=8,
    ),
    Bug(
        "atomic_and_plain",
        FaultKind.RACE,
        r"c\[0\]",
        """
        if (t < 64) atomicAdd(c, 1);
        else
        c[0] = 5; // here
        """,
    ),
    Bug(
        "warp_without_syncwarp",
        FaultKind.RACE,
        "no barrier",
        """
        if (t < 32) {
            s[t] = a[t];
            c[t] = s[31 - t]; // here
        }
        """,
    ),
    Bug(
        "barrier_in_a_branch",
        FaultKind.BARRIER,
        "has left the kernel",
        """
        if (t < 64)
        __syncthreads(); // here
        c[t] = 1;
        """,
    ),
    Bug(
        "barrier_after_return",
        FaultKind.BARRIER,
        r"waits at a barrier, but thread \(77, 0, 0\) has left the kernel",
        """
        if (t == 77) return;
        c[t] = 1;
        __syncthreads(); // here
        """,
    ),
    Bug(
        "two_barriers",
        FaultKind.BARRIER,
        "waits at a barrier, but thread",
        """
        if (t < 64) {
            c[t] = 1;
            __syncthreads(); // here
        } else {
            c[t] = 2;
            __syncthreads();
        }
        c[t] += 1;
        """,
    ),
    Bug(
        "barrier_splits_a_warp",
        FaultKind.BARRIER,
        "warp",
        """
        if (t % 2) {
            c[t] = 1;
            __syncthreads();
        } else {
            c[t] = 2;
            __syncthreads(); // here
        }
        c[t] += 1;
        """,
    ),
    Bug(
        "shuffle_in_a_branch",
        FaultKind.BAD_MASK,
        "mask",
        """
        float v = a[t];
        if (t % 32 < 16)
        v += __shfl_down_sync(~0u, v, 8); // here
        c[t] = v;
        """,
    ),
    Bug(
        "shuffle_after_return",
        FaultKind.BAD_MASK,
        "mask",
        """
        if (t % 32 == 31) return;
        c[t] = __shfl_xor_sync(~0u, a[t], 1); // here
        """,
    ),
    Bug(
        "ballot_in_a_partial_warp",
        FaultKind.BAD_MASK,
        "mask",
        """
        c[t] = __ballot_sync(~0u, t & 1); // here
        """,
        block=48,
    ),
    Bug(
        "trap",
        FaultKind.TRAP,
        "trap",
        """
        if (t == 5)
        __trap(); // here
        c[t] = 1;
        """,
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug(run, bug):
    a, b, c = (aligned(N) for _ in range(3))
    a[:] = np.arange(N)
    with pytest.raises(simt.Fault, match=bug.message) as caught:
        run(bug.source, bug.grid, bug.block, a, b, c, N, fresh=bug.fresh)
    fault = caught.value
    assert (fault.kind, fault.line) == (bug.kind, bug.line)
    assert fault.kernel == "kernel"
    assert fault.file == "kernel.cu"


def test_fault_names_block_thread_and_address(run):
    source = """__global__ void kernel(float* a) {
        int i = (blockIdx.y * gridDim.x + blockIdx.x) * 12 + threadIdx.y * 4 + threadIdx.x;
        a[i] = 1;
    }"""
    a = aligned(39)
    with pytest.raises(simt.Fault) as caught:
        run(source, (2, 2), (4, 3), a)
    fault = caught.value
    assert (fault.line, fault.block, fault.thread) == (3, (1, 1, 0), (3, 0, 0))
    assert fault.address == a.ctypes.data + 4 * 39


def test_endless_loop_is_stopped_with_its_line(run):
    source = """__global__ void kernel(volatile int* a) {
        a[0] = 0;
        while (a[0] == 0);
        a[1] = 1;
    }"""
    with pytest.raises(simt.TimedOut) as caught:
        run(source, 1, 1, np.zeros(2, np.int32), max_instructions=3_000_000)
    assert caught.value.line == 3
    assert caught.value.instructions == 3_000_000


HARMLESS = {
    "all threads write the same value": "if (a[threadIdx.x] == 0) c[0] = 7;",
    "atomics of several blocks": "atomicAdd(c + threadIdx.x % 8, 1.0f);",
    "a loop around compare-and-swap": """int* p = (int*)c; int old = *p, seen;
        do { seen = old; old = atomicCAS(p, seen, seen + 1); } while (old != seen);""",
    "a thread reads what it wrote": "c[threadIdx.x] = 1; c[threadIdx.x] += 1;",
    "half-words of one word": "((short*)c)[threadIdx.x] = threadIdx.x;",
    "a warp with syncwarp": """__shared__ float s[128];
        s[threadIdx.x] = a[threadIdx.x]; __syncwarp();
        c[threadIdx.x] = s[threadIdx.x ^ 1]; __syncwarp(); s[threadIdx.x] = 2;""",
    "a tile used twice": """__shared__ float s[128];
        for (int k = 0; k < 3; k++) {
            s[threadIdx.x] = a[threadIdx.x]; __syncthreads();
            b[threadIdx.x] = s[127 - threadIdx.x]; __syncthreads();
        }""",
    "a divergent warp that meets again": """float v = threadIdx.x;
        if (threadIdx.x % 2) v *= 2; else v += 1;
        c[threadIdx.x] = __shfl_sync(~0u, v, 3);""",
    "half a warp with its own mask": """float v = threadIdx.x;
        if (threadIdx.x % 32 < 16) v = __shfl_xor_sync(0xffff, v, 1); else v = __shfl_xor_sync(0xffff0000, v, 2);
        c[threadIdx.x] = v;""",
    "a barrier that whole warps reach by different ways": """float v = 0;
        if (threadIdx.x < 64) v = 1;
        __syncthreads();
        c[threadIdx.x] = v;""",
}


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS.keys())
def test_no_complaint_about(run, body):
    a, b, c = (aligned(N) for _ in range(3))
    run(f"__global__ void kernel(float* a, float* b, float* c, int n) {{ {body} }}", 1, 128, a, b, c, N)


def test_memory_is_remembered_over_launches(run):
    write = "__global__ void kernel(float* a, float* b) { a[threadIdx.x] = 1; }"
    read = "__global__ void kernel(float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }"
    a, b = aligned(64), aligned(64)
    memory = simt.Memory()
    run(write, 1, 32, a, b, fresh=[0], memory=memory)
    run(read, 1, 32, a, b, fresh=[0], memory=memory)
    with pytest.raises(simt.Fault, match=r"reads 4 bytes at a\[32\], which nothing has written"):
        run(read, 1, 64, a, b, fresh=[0], memory=memory)


def test_views_of_one_array_are_one_memory():
    source = "__global__ void kernel(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x] + 1; }"
    module, name = compile_ptx(source)
    whole = aligned(100)
    left, right = whole[:70], whole[40:]
    buffers = [buffer("left", left), buffer("right", right)]
    launch = module.launch(
        name, grid=(1,), block=(30,), args=[left.ctypes.data, right.ctypes.data + 120], buffers=buffers
    )
    assert launch.buffers_written["left"].sum() == 0
    assert launch.buffers_written["right"].reshape(-1, 4)[:, 0].nonzero()[0].tolist() == list(range(30, 60))
    with pytest.raises(simt.Fault, match=r"past the end of left and right \(100 float32\)"):
        module.launch(name, grid=(1,), block=(61,), args=[right.ctypes.data] * 2, buffers=buffers)


def test_launches_that_cannot_be():
    module, name = compile_ptx("__global__ void kernel(int* a) { a[0] = 1; }")
    with pytest.raises(ValueError, match="larger than 1024"):
        module.launch(name, grid=(1,), block=(32, 64), args=[0])
    with pytest.raises(ValueError, match="takes 1 arguments, 0 were given"):
        module.launch(name, grid=(1,), block=(32,))
    with pytest.raises(KeyError):
        module.launch("missing", grid=(1,), block=(32,))
