"""Test planted bugs: each fault has the right kind, line, and message."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from machine.bugs import BUGS, Bug
from machine.launching import Run, aligned, buffer, compile_ptx
from warpcheck import simt
from warpcheck.simt import FaultKind

N = 1000  # floats in a, b, c


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_reported(run: Run, bug: Bug) -> None:
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
LOOP = """__global__ void kernel(const float* a, float* c) {{
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = 0;
    for (int begin = 0; begin < 256; begin += 64) {{
        {before}
        s[t] = a[begin + t];
        __syncthreads();
        {between}
        sum += s[blockDim.x - 1 - t];
        {after}
    }}
    c[t] = sum;
}}"""
RACES = {
    "in the next pass of a loop": (
        LOOP.format(before="", between="", after=""),
        64,
        "line 10: thread 32 of block 0 reads 4 bytes at s[31] (byte 124 of 256), which thread 31 writes in line 7 "
        "in the next pass of the loop (or call of the function): a barrier is missing between line 10 and line 7",
    ),
    "in the previous pass of a loop": (
        LOOP.format(before="", between="", after=""),
        32,
        "line 7: thread 0 of block 0 writes 4 bytes at s[0] (byte 0 of 256), which thread 31 reads in line 10 "
        "in the previous pass of the loop (or call of the function): a barrier is missing between line 10 and line 7",
    ),
    "a barrier that nobody has reached is none": (
        LOOP.format(before="", between="", after="").replace("__sync", "if (a[0] == 7) __sync"),
        64,
        "which thread 63 writes in line 7 with no barrier between them",
    ),
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


@pytest.mark.parametrize(("source", "block", "sentence"), RACES.values(), ids=RACES.keys())
def test_a_race_names_the_other_access(run: Run, source: str, block: Any, sentence: str) -> None:
    a = aligned(1024)
    c = aligned(1024)
    a[:] = np.arange(1, 1025)
    with pytest.raises(simt.Fault, match=re.escape(sentence)) as caught:
        run(source, 1, block, a, c, *[32] * ("rows" in source))
    assert caught.value.kind == FaultKind.RACE


@pytest.mark.parametrize("block", [(32, 8), (32, 32), (32, 1)])
def test_a_read_of_memory_that_is_never_written_is_no_race(run: Run, block: Any) -> None:
    with pytest.raises(simt.Fault, match="which nothing has written") as caught:
        run(TRANSPOSE.format(barrier="__syncthreads();"), 1, block, aligned(1024), aligned(1024), 31)
    fault = caught.value
    assert (fault.kind, fault.line) == (FaultKind.UNINITIALIZED, 9)
    assert fault.thread == (31, 0, 0)


def test_an_address_before_shared_memory_is_relative_to_its_first_array(run: Run) -> None:
    source = """__global__ void kernel(float* c, int before) {
        __shared__ float tile[64], other[64];
        other[threadIdx.x] = tile[threadIdx.x] = 0;
        __syncthreads();
        c[threadIdx.x] = tile[(int)threadIdx.x - before] + other[threadIdx.x];
    }"""
    with pytest.raises(simt.Fault, match=r"reads 4 bytes 4 bytes before the beginning of tile$"):
        run(source, 1, 64, aligned(64), 1)


def test_an_unwritten_tensor_hints_at_the_order_of_the_arguments(run: Run) -> None:
    source = "__global__ void kernel(const float* a, float* c) { c[threadIdx.x] = a[threadIdx.x]; }"
    with pytest.raises(simt.Fault, match=r"a\[0\], which nothing has written; .* the order of the arguments"):
        run(source, 1, 32, aligned(32), aligned(32), fresh=[0, 1])


def test_an_unwritten_element_is_reported_despite_writes_to_others(run: Run) -> None:
    source = """__global__ void kernel(const float* a, float* c, int n) {
        __shared__ float s[64];
        if (threadIdx.x < 32) s[threadIdx.x] = a[threadIdx.x];
        __syncthreads();
        c[threadIdx.x / 2] = s[63 - threadIdx.x] + threadIdx.x;
    }"""
    with pytest.raises(simt.Fault, match=r"thread 0 of block 0 reads 4 bytes at s\[63\].*which nothing has written"):
        run(source, 1, 64, aligned(64), aligned(64), 0)


def test_a_zero_that_is_written_too_late_is_a_race(run: Run) -> None:
    source = """__global__ void kernel(float* c) {
        __shared__ float s[64];
        s[threadIdx.x] = 0;
        c[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    with pytest.raises(simt.Fault, match=r"which thread 63 writes in line 3 with no barrier") as caught:
        run(source, 1, 64, aligned(64))
    assert caught.value.kind == FaultKind.RACE


BLOCK_RACES = {
    "two writers": (
        "b[threadIdx.x] = blockIdx.x;",
        "thread 0 of block 1 writes 4 bytes at b[0], which thread 0 of block 0 writes too in the same line: "
        "blocks run in any order, so each element needs one owner",
    ),
    "a writer and a reader": (
        "if (blockIdx.x == 1) b[40] = 1; if (blockIdx.x == 0) a[threadIdx.x] = b[threadIdx.x];",
        "thread 0 of block 1 writes 4 bytes at b[40], which thread 40 of block 0 reads in the same line: "
        "blocks run in any order, and nothing orders these two: a launch for each step would",
    ),
    "a flag without a fence": (
        "if (blockIdx.x == 0) {\nb[40] = 1;\natomicExch((int*)a, 1);\n} else {\n"
        "while (atomicAdd((int*)a, 0) == 0) {}\na[1] = b[40];\n}",
        "blocks run in any order, and a flag orders these two only where __threadfence() stands before it",
    ),
    "a volatile flag without a fence": (
        "if (blockIdx.x == 0) {\nb[40] = 1;\n*(volatile float*)a = 1;\n} else {\n"
        "while (*(volatile float*)a == 0) {}\na[1] = b[40];\n}",
        "blocks run in any order, and a flag orders these two only where __threadfence() stands before it",
    ),
    "a counter of the scope of a block": (
        "if (threadIdx.x == 0) atomicAdd_block((int*)a, 1);",
        "blocks run in any order, and the scope of a block (.cta) orders none but the threads of one block",
    ),
    "a flag that is read at the scope of a block": (
        "if (blockIdx.x == 0) {\nb[40] = 1;\n__threadfence();\natomicExch((int*)a, 1);\n} "
        "else if (threadIdx.x == 0) {\n"
        'int v;\ndo asm volatile("ld.acquire.cta.global.u32 %0, [%1];" : "=r"(v) : "l"(a)); while (v == 0);\n'
        "a[1] = b[40];\n}",
        "blocks run in any order, and the scope of a block (.cta) orders none but the threads of one block",
    ),
    "a flag that is written at the scope of a block": (
        "if (blockIdx.x == 0) {\nb[40] = 1;\n__threadfence();\n"
        'asm volatile("st.relaxed.cta.global.u32 [%0], 1;" :: "l"(a) : "memory");\n} else if (threadIdx.x == 0) {\n'
        'int v;\ndo asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(a)); while (v == 0);\n'
        "a[1] = b[40];\n}",
        "blocks run in any order, and the scope of a block (.cta) orders none but the threads of one block",
    ),
}


@pytest.mark.parametrize(("body", "sentence"), BLOCK_RACES.values(), ids=BLOCK_RACES.keys())
def test_a_race_between_blocks_names_both_blocks(run: Run, body: str, sentence: str) -> None:
    a = aligned(64)
    c = aligned(64)
    with pytest.raises(simt.Fault, match=re.escape(sentence)):
        run(f"__global__ void kernel(float* a, float* b) {{ {body} }}", 3, 64, a, c)


def test_a_block_of_a_2d_grid_is_named_by_its_coordinates(run: Run) -> None:
    source = "__global__ void kernel(float* a) { a[blockIdx.x] = blockIdx.y; }"
    with pytest.raises(
        simt.Fault, match=re.escape("thread 0 of block (0, 1) writes 4 bytes at a[0], which thread 0 of block (0, 0)")
    ):
        run(source, (3, 2), 1, aligned(8))


def test_a_barrier_in_a_loop_with_unequal_trip_counts_is_a_fault(run: Run) -> None:
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


def test_an_unwritten_local_array_hints_at_a_missing_shared(run: Run) -> None:
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


def test_a_fault_has_its_block_thread_and_address(run: Run) -> None:
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


def test_an_endless_loop_is_stopped_at_its_line(run: Run) -> None:
    source = """__global__ void kernel(volatile int* a) {
        a[0] = 0;
        while (a[0] == 0);
        a[1] = 1;
    }"""
    with pytest.raises(simt.TimedOut) as caught:
        run(source, 1, 1, np.zeros(2, np.int32), max_instructions=3_000_000)
    assert caught.value.line == 3
    assert caught.value.message == "still running after 3,000,000 instructions: a loop that does not end?"


def test_initialized_memory_stays_initialized_in_later_launches(run: Run) -> None:
    write = "__global__ void kernel(float* a, float* b) { a[threadIdx.x] = 1; }"
    read = "__global__ void kernel(float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }"
    a = aligned(64)
    b = aligned(64)
    memory = simt.Memory()
    run(write, 1, 32, a, b, fresh=[0], memory=memory)
    run(read, 1, 32, a, b, fresh=[0], memory=memory)
    with pytest.raises(simt.Fault, match=r"reads 4 bytes at a\[32\], which nothing has written"):
        run(read, 1, 64, a, b, fresh=[0], memory=memory)


def test_overlapping_views_share_their_memory() -> None:
    source = "__global__ void kernel(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x] + 1; }"
    module, name = compile_ptx(source)
    array = aligned(100)
    left_view = array[:70]
    right_view = array[40:]
    buffers = [buffer("left", left_view), buffer("right", right_view)]
    launch = module.launch(
        name, grid=(1,), block=(30,), args=[left_view.ctypes.data, right_view.ctypes.data + 120], buffers=buffers
    )
    assert launch.buffers_written["left"].sum() == 0
    assert launch.buffers_written["right"].reshape(-1, 4)[:, 0].nonzero()[0].tolist() == list(range(30, 60))
    with pytest.raises(simt.Fault, match=r"past the end of left and right \(100 float32\)"):
        module.launch(name, grid=(1,), block=(61,), args=[right_view.ctypes.data] * 2, buffers=buffers)


def test_memory_has_the_buffer_name_of_the_latest_launch(run: Run) -> None:
    """A previous kernel may have used the same memory under another name."""
    a = aligned(64)
    memory = simt.Memory()
    for name in ("c", "x"):
        shadow = memory.shadow(simt.Buffer(name, a.ctypes.data, a.nbytes, 4), 2)
        assert shadow.buffer.name == name


def test_an_access_far_from_all_tensors_names_the_nearest_tensor(run: Run) -> None:
    source = "__global__ void kernel(float* a, long long i) { a[i] = 1; }"
    with pytest.raises(simt.Fault, match=r"where no tensor is; from the nearest one, a \(64 \w+\), it would be a\[9,"):
        run(source, 1, 1, aligned(64), 9_000_000_000)
