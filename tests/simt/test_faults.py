"""Planted bugs: each is found, with its kind, its line and a sentence that says what is wrong.

The line with the bug carries the comment ``// here``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from kernelpath import simt
from kernelpath.simt import FaultKind
from tests.simt.conftest import aligned, buffer, compile_ptx

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
        r"reads 16 bytes at a\[1\], whose address is not a multiple of 16",
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
        "misaligned_and_far_away",
        FaultKind.OUT_OF_BOUNDS,
        r"thread 0 of block 0 reads 4 bytes past the end of a \(1000 float32\), by 5 bytes",
        """
        c[t] = *(float*)((char*)(a + n) + 1); // here
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
        r"thread 0 of block 0 reads 4 bytes at s\[127\] \(byte 508 of 512\), which nothing has written",
        """
        if (t < 64) s[t] = a[t];
        __syncthreads();
        c[t] = s[127 - t]; // here
        """,
    ),
    Bug(
        "sum_not_set_to_zero",
        FaultKind.UNINITIALIZED,
        r"thread 0 of block 0 updates 4 bytes at s\[5\] .*, which nothing has written",
        """
        atomicAdd(s + 5, a[t]); // here
        __syncthreads();
        c[t] = s[5];
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
        r"reads 4 bytes at s\[64\] \(byte 256 of 512\), which nothing has written",
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
        r"thread 0 of block 0 reads .* s\[127\] .*, which thread 127 writes in line 6 with no barrier between them",
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
        "thread 64 of block 0 skipped this barrier: it returned early, or the barrier stands inside an if",
        """
        if (t < 64)
        __syncthreads(); // here
        c[t] = 1;
        """,
    ),
    Bug(
        "barrier_after_return",
        FaultKind.BARRIER,
        "thread 77 of block 0 skipped this barrier",
        """
        if (t == 77) return;
        c[t] = 1;
        __syncthreads(); // here
        """,
    ),
    Bug(
        "two_barriers",
        FaultKind.BARRIER,
        "thread 0 of block 0 waits at a barrier, but thread 64 waits in line 11",
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
        "thread 0 of block 0 waits at a barrier, but thread 31 waits in line 8",
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
        r"runs shfl.sync.down.b32 with the mask 0xffffffff \(lanes 0 to 31\), but without lanes 16 to 31",
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
        "but without lane 31",
        """
        if (t % 32 == 31) return;
        c[t] = __shfl_xor_sync(~0u, a[t], 1); // here
        """,
    ),
    Bug(
        "ballot_in_a_partial_warp",
        FaultKind.BAD_MASK,
        "thread 32 of block 0 runs vote.sync.ballot.b32 .* but without lanes 16 to 31",
        """
        c[t] = __ballot_sync(~0u, t & 1); // here
        """,
        block=48,
    ),
    Bug(
        "mask_without_lanes_that_run_it",
        FaultKind.BAD_MASK,
        r"with the mask 0x0000ff0f \(lanes 0 to 3, 8 to 15\), but with lanes 4 to 7, 16 to 31 too",
        """
        c[t] = __shfl_xor_sync(0xff0f, a[t], 1); // here
        """,
    ),
    Bug(
        "trap",
        FaultKind.TRAP,
        "thread 37 of block 0 stops at a trap",
        """
        if (t == 37)
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


TRANSPOSE = """__global__ void kernel(const float* a, float* c, int rows) {{
    __shared__ float tile[32][33];
    int x = threadIdx.x, y = threadIdx.y;
    for (int j = 0; j < 32; j += blockDim.y)
        if (y + j < rows)
            tile[y + j][x] = a[32 * (y + j) + x];
    {barrier}
    for (int j = 0; j < 32; j += blockDim.y)
        c[32 * (y + j) + x] = tile[x][y + j];
}}"""
BROADCAST = """__global__ void kernel(const float* a, float* c) {{
    __shared__ float s[8];
    int t = blockDim.x * (blockDim.y * threadIdx.z + threadIdx.y) + threadIdx.x;
    if (t < 8) s[t] = a[t];
    __syncthreads();
    if ({readers}) c[t] = s[3];
    {between}
    if (t == {writer})
        s[3] = 8;
}}"""
ACCUSED = {
    "the writer comes later, in another warp": (
        TRANSPOSE.format(barrier=""),
        (32, 8),
        "line 9: thread (1, 0) of block 0 reads 4 bytes at tile[33] (byte 132 of 4224), "
        "which thread (0, 1) writes in line 6 with no barrier between them",
    ),
    "one warp has two rows": (
        TRANSPOSE.format(barrier=""),
        (16, 16),
        "line 9: thread (1, 0) of block 0 reads 4 bytes at tile[33] (byte 132 of 4224), "
        "which thread (0, 1) writes in line 6 with no barrier between them",
    ),
    "three dimensions": (
        BROADCAST.format(readers="t == 29", between="", writer=59),
        (4, 4, 4),
        "line 9: thread (3, 2, 3) of block 0 writes 4 bytes at s[3] (byte 12 of 32), "
        "which thread (1, 3, 1) reads in line 6 with no barrier between them",
    ),
    "every lane reads, the last one writes": (
        BROADCAST.format(readers="t < 32", between="", writer=31),
        (8, 4),
        "which thread (1, 0) reads in line 6 with no barrier between them",
    ),
    "the reader's warp is known, another one's is not": (
        BROADCAST.format(readers="t < 64", between="__syncwarp();", writer=63),
        (8, 8),
        "which thread (1, 0) reads in line 6 with no barrier between them",
    ),
    "an atomic": (
        BROADCAST.format(readers="false", between="if (t == 3) atomicAdd(&s[3], 1.0f);", writer=40),
        64,
        "line 9: thread 40 of block 0 writes 4 bytes at s[3] (byte 12 of 32), "
        "which thread 3 updates in line 7 with no barrier between them",
    ),
}


@pytest.mark.parametrize(("source", "block", "sentence"), ACCUSED.values(), ids=ACCUSED.keys())
def test_race_names_the_other_access(run, source, block, sentence):
    a, c = aligned(1024), aligned(1024)
    a[:] = np.arange(1, 1025)
    with pytest.raises(simt.Fault, match=re.escape(sentence)) as caught:
        run(source, 1, block, a, c, *[32] * ("rows" in source))
    assert caught.value.kind == FaultKind.RACE


@pytest.mark.parametrize("block", [(32, 8), (32, 32), (32, 1)])
def test_place_that_is_never_written_is_no_race(run, block):
    with pytest.raises(simt.Fault, match="which nothing has written") as caught:
        run(TRANSPOSE.format(barrier="__syncthreads();"), 1, block, aligned(1024), aligned(1024), 31)
    fault = caught.value
    assert (fault.kind, fault.line) == (FaultKind.UNINITIALIZED, 9)
    assert fault.thread == (31, 0, 0)


def test_race_elsewhere_does_not_explain_an_unwritten_place(run):
    source = """__global__ void kernel(const float* a, float* c, int n) {
        __shared__ float s[64];
        if (threadIdx.x < 32) s[threadIdx.x] = a[threadIdx.x];
        __syncthreads();
        c[threadIdx.x / 2] = s[63 - threadIdx.x] + threadIdx.x;
    }"""
    with pytest.raises(simt.Fault, match=r"thread 0 of block 0 reads 4 bytes at s\[63\].*which nothing has written"):
        run(source, 1, 64, aligned(64), aligned(64), 0)


def test_zero_written_too_late_is_a_race(run):
    source = """__global__ void kernel(float* c) {
        __shared__ float s[64];
        s[threadIdx.x] = 0;
        c[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    with pytest.raises(simt.Fault, match=r"which thread 63 writes in line 3 with no barrier") as caught:
        run(source, 1, 64, aligned(64))
    assert caught.value.kind == FaultKind.RACE


BLOCKS = {
    "two writers": (
        "b[threadIdx.x] = blockIdx.x;",
        "thread 0 of block 1 writes 4 bytes at b[0], which thread 0 of block 0 writes too in the same line: "
        "blocks run in any order, so each element needs one owner",
    ),
    "a writer and a reader": (
        "if (blockIdx.x == 1) b[40] = 1; if (blockIdx.x == 0) a[threadIdx.x] = b[threadIdx.x];",
        "thread 0 of block 1 writes 4 bytes at b[40], which thread 40 of block 0 reads in the same line: "
        "blocks run in any order, and no barrier holds between them",
    ),
}


@pytest.mark.parametrize(("body", "sentence"), BLOCKS.values(), ids=BLOCKS.keys())
def test_race_of_two_blocks_names_both(run, body, sentence):
    a, c = aligned(64), aligned(64)
    with pytest.raises(simt.Fault, match=re.escape(sentence)):
        run(f"__global__ void kernel(float* a, float* b) {{ {body} }}", 3, 64, a, c)


def test_block_of_a_grid_has_its_coordinates(run):
    source = "__global__ void kernel(float* a) { a[blockIdx.x] = blockIdx.y; }"
    with pytest.raises(
        simt.Fault, match=re.escape("thread 0 of block (0, 1) writes 4 bytes at a[0], which thread 0 of block (0, 0)")
    ):
        run(source, (3, 2), 1, aligned(8))


def test_barrier_that_a_loop_goes_round(run):
    source = """__global__ void kernel(const float* a, float* c, int n) {
        __shared__ float tile[128];
        int t = threadIdx.x;
        float sum = 0;
        for (int begin = 0; begin < 256; begin += 128) {
            if (t < n) {
                tile[t] = a[begin + t];
                __syncthreads();
            }
            for (int i = 0; i < n; i++) sum += tile[i];
            __syncthreads();
        }
        c[t] = sum;
    }"""
    with pytest.raises(
        simt.Fault, match=r"line 8: thread 96 of block 0 waits at a barrier, but thread 127 waits in line 11"
    ) as caught:
        run(source, 1, 128, aligned(256) + 1, aligned(128), 100)
    assert caught.value.kind == FaultKind.BARRIER
    with pytest.raises(simt.Fault, match=r"line 8: thread 100 of block 0 skipped this barrier") as caught:
        run(re.sub(r"(tile\[i\];\s*)__syncthreads\(\);", r"\1", source), 1, 128, aligned(256) + 1, aligned(128), 100)
    assert caught.value.kind == FaultKind.BARRIER


def test_array_that_was_meant_to_be_shared(run):
    source = """__global__ void kernel(const float* a, float* c) {
        float s[64];
        s[threadIdx.x] = a[threadIdx.x];
        __syncthreads();
        c[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    with pytest.raises(simt.Fault, match=r"one thread alone \(local memory; is __shared__ missing\?\), which nothing"):
        run(source, 1, 64, aligned(64), aligned(64))
    with pytest.raises(simt.Fault, match=r"one thread alone \(local memory\), which nothing"):
        run(source.replace("__syncthreads();", ""), 1, 64, aligned(64), aligned(64))


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
