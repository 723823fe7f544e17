"""Blocks that wait for each other: the barrier of a cooperative grid, and flags in device memory."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from machine.launching import Run, aligned
from warpcheck import simt
from warpcheck.simt import FaultKind

GROUPS = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"

NEIGHBOURS = (
    GROUPS
    + """__global__ void kernel(const float* a, float* b, float* c, int n) {
    cg::grid_group grid = cg::this_grid();
    int i = grid.thread_rank(), size = grid.size();
    for (int k = 0; k < n; k++) {
        b[i] = a[i] + k;
        grid.sync();
        c[i] = b[(i + 32) % size];
        grid.sync();  // before the next write
    }
}"""
)


def three(size: int) -> list[np.ndarray[Any, Any]]:
    a, b, c = (aligned(size) for _ in range(3))
    a[:] = np.arange(size)
    return [a, b, c]


@pytest.mark.parametrize(("blocks", "threads"), [(1, 64), (5, 32), (13, 96)])
@pytest.mark.parametrize("reverse", [False, True])
def test_barrier_of_the_grid(run: Run, blocks: int, threads: int, reverse: bool) -> None:
    a, b, c = three(blocks * threads)
    launch = run(NEIGHBOURS, blocks, threads, a, b, c, 3, fresh=[1, 2], cooperative=True, reverse=reverse)
    assert c.tolist() == (np.roll(a, -32) + 2).tolist()
    author = launch.writer(c.ctypes.data + 4 * 33)
    assert author is not None
    assert (author.block, author.thread) == (str(33 // threads), str(33 % threads))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("barrier", ["before the next write", "instead of the first"])
def test_a_barrier_of_the_grid_that_is_missing(run: Run, barrier: str, reverse: bool) -> None:
    lines = NEIGHBOURS.splitlines()
    gone = next(n for n, line in enumerate(lines) if "grid.sync" in line and (barrier in line) == ("before" in barrier))
    lines[gone] = "__syncthreads();"
    with pytest.raises(simt.Fault) as caught:
        run("\n".join(lines), 4, 32, *three(128), 3, cooperative=True, reverse=reverse)
    assert caught.value.kind is FaultKind.RACE
    assert caught.value.line in (7, 9)


def test_barrier_of_the_grid_in_a_launch_that_is_not_cooperative(run: Run) -> None:
    with pytest.raises(
        simt.Fault, match=r"stops at a trap: grid.sync\(\) needs a launch with cooperative=True"
    ) as caught:
        run(NEIGHBOURS, 2, 32, *three(64), 1)
    assert (caught.value.kind, caught.value.line) == (FaultKind.TRAP, 8)


def test_a_cooperative_grid_that_does_not_fit(run: Run) -> None:
    source = "__global__ void kernel(int* a) { extern __shared__ int s[]; s[threadIdx.x] = a[0]; }"
    a = aligned(1, np.int32)
    run(source, 108, 1, a, shared=100_000, cooperative=True)
    with pytest.raises(ValueError, match="too many blocks in cooperative launch: 109, and 108 fit, 1 on each of 108"):
        run(source, 109, 1, a, shared=100_000, cooperative=True)


def test_a_block_that_leaves_before_the_barrier_of_the_grid(run: Run) -> None:
    source = (
        GROUPS
        + """__global__ void kernel(int* a) {
        if (blockIdx.x == 2) return;
        a[blockIdx.x] = 1;
        cg::this_grid().sync();
    }"""
    )
    with pytest.raises(simt.TimedOut) as caught:
        run(source, 4, 64, aligned(4, np.int32), cooperative=True)
    assert caught.value.line == 6
    assert "a deadlock: every remaining thread waits for another one" in caught.value.message


CHAIN = """__global__ void kernel(const int* a, int* flags, int* sums, int* c) {
    __shared__ int before;
    int block = ORDER, t = threadIdx.x;
    if (t == 0) {
        before = 0;
        if (block > 0) {
            while (WAIT(flags + block - 1) == 0) {}
            __threadfence();
            before = sums[block - 1];
        }
        sums[block] = before + a[block];
        __threadfence();
        SET(flags + block);
    }
    __syncthreads();
    c[block * blockDim.x + t] = before;
}"""

SPELLINGS = {
    "volatile": ("*(volatile int*)(p)", "*(volatile int*)(p) = 1"),
    "atomicAdd": ("atomicAdd(p, 0)", "atomicExch(p, 1)"),
    "atomicCAS": ("atomicCAS(p, 1, 1)", "atomicAdd(p, 1)"),
    "cuda::atomic_ref": (
        "cuda::atomic_ref<int, cuda::thread_scope_device>(*(p)).load(cuda::memory_order_acquire)",
        "cuda::atomic_ref<int, cuda::thread_scope_device>(*(p)).store(1, cuda::memory_order_release)",
    ),
}


def chain(spelling: str, order: str) -> str:
    wait, put = SPELLINGS[spelling]
    include = "#include <cuda/atomic>\n" * ("cuda" in spelling)
    return f"{include}#define WAIT(p) {wait}\n#define SET(p) {put}\n#define ORDER {order}\n{CHAIN}"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("order", ["blockIdx.x", "gridDim.x - 1 - blockIdx.x"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_block_waits_for_the_one_before(run: Run, spelling: str, order: str, reverse: bool) -> None:
    """A scan with look-back does so, whichever block the GPU begins with."""
    a, flags, sums, c = (aligned(size, np.int32) for size in (40, 40, 40, 40 * 64))
    a[:] = np.arange(1, 41)
    run(chain(spelling, order), 40, 64, a, flags, sums, c, fresh=[2, 3], reverse=reverse)
    assert sums.tolist() == np.cumsum(a).tolist()
    assert c[::64].tolist() == [0, *np.cumsum(a)[:-1]]


POLLS = {
    "atomics": """do { if (t == 0) done = atomicAdd(flag, 0); __syncthreads(); go = done; __syncthreads(); }
        while (!go);""",
    "volatile loads": """do { if (t == 0) done = *(volatile int*)flag; __syncthreads(); go = done; __syncthreads(); }
        while (!go);""",
    "a barrier that reduces": "while (!__syncthreads_or(t == 0 && atomicAdd(flag, 0)));",
    "after warps have left": """if (t >= 32) return;
        do { if (t == 0) done = atomicAdd(flag, 0); __syncthreads(); go = done; __syncthreads(); } while (!go);""",
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("loop", POLLS.values(), ids=POLLS.keys())
def test_a_block_that_polls_with_a_barrier_in_its_loop_gives_way(run: Run, loop: str, reverse: bool) -> None:
    source = f"""__global__ void kernel(int* flag, int* out) {{
        __shared__ int done;
        int t = threadIdx.x, go = 0;
        if (blockIdx.x % 2 == {int(reverse)}) {{ {loop} if (t == 0) out[0] = 7; }}
        else if (t == 0) {{ __threadfence(); atomicExch(flag, 1); }}
    }}"""
    flag, out = aligned(1, np.int32), aligned(1, np.int32)
    run(source, 2, 64, flag, out, reverse=reverse, max_instructions=1 << 26)
    assert out[0] == 7


def test_a_flag_without_a_fence_is_a_race(run: Run) -> None:
    source = chain("volatile", "gridDim.x - 1 - blockIdx.x")
    last = source.rindex("        __threadfence();\n")
    arrays = [aligned(8, np.int32) for _ in range(3)]
    with pytest.raises(simt.Fault) as caught:
        run(source[:last] + "\n" + source[last + 25 :], 8, 32, *arrays, aligned(256, np.int32))
    assert caught.value.kind is FaultKind.RACE


def test_a_block_that_waits_for_ever(run: Run) -> None:
    source = chain("volatile", "gridDim.x - 1 - blockIdx.x").replace("SET(flags + block);", "")
    arrays = [aligned(8, np.int32) for _ in range(3)]
    with pytest.raises(simt.TimedOut) as caught:
        run(source, 8, 32, *arrays, aligned(256, np.int32))
    assert source.splitlines()[caught.value.line - 1].strip().startswith("while (WAIT")


def test_blocks_that_wait_have_their_own_shared_memory(run: Run) -> None:
    source = """__global__ void kernel(int* flag, int* c) {
        __shared__ int s[64];
        s[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicAdd(flag, 1);
            while (atomicAdd(flag, 0) < gridDim.x) {}
        }
        __syncthreads();
        c[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
    }"""
    flag, c = aligned(1, np.int32), aligned(6 * 64, np.int32)
    launch = run(source, 6, 64, flag, c)
    assert c.tolist() == [block * 100 + 63 - t for block in range(6) for t in range(64)]
    loads = [access for access in launch.accesses if access.shared and access.access == 0]
    assert [access.buffer for access in loads] == ["s"]


def test_more_work_than_there_are_instructions_for(run: Run) -> None:
    source = "__global__ void kernel(int* a) { for (int k = 0; k < 100; k++) a[blockIdx.x * 32 + threadIdx.x] += k; }"
    with pytest.raises(
        simt.TimedOut, match=r"still running after 1,000,000 instructions, with [0-9,]+ of 10,000 blocks done: too"
    ):
        run(source, 10_000, 32, aligned(320_000, np.int32), max_instructions=1_000_000)


def test_the_limit_per_block_bounds_no_launch_whose_blocks_end(run: Run) -> None:
    many = "__global__ void kernel(int* a) { for (int k = 0; k < 2000; k++) a[blockIdx.x * 32 + threadIdx.x] += k; }"
    limit = {"max_instructions": 1 << 25, "is_limit_per_block": True}
    run(many, 300, 32, aligned(9_600, np.int32), **limit)  # three times the limit, in small blocks
    endless = "__global__ void kernel(int* a) { while (blockIdx.x == 299) a[blockIdx.x * 32 + threadIdx.x] += 1; }"
    with pytest.raises(simt.TimedOut, match=r"a loop that does not end\?"):
        run(endless, 300, 32, aligned(9_600, np.int32), **limit)


def test_waiting_is_not_counted(run: Run) -> None:
    """How often a thread asks is up to time; the driver's memory is not the kernel's."""
    source = chain("volatile", "gridDim.x - 1 - blockIdx.x")
    launch = run(source, 8, 32, *(aligned(8, np.int32) for _ in range(3)), aligned(256, np.int32))
    (polls,) = (one for one in launch.accesses if one.buffer == "b" and one.access == 0)
    assert (polls.requests, polls.sectors) == (7, 7)
    launch = run(NEIGHBOURS, 5, 32, *three(160), 2, cooperative=True)
    assert {one.buffer for one in launch.accesses} == {"a", "b", "c"}


def test_waiting_in_shared_memory_is_brief_and_not_counted(run: Run) -> None:
    """Warps of cooperative groups of several warps synchronize like this, without a barrier."""
    source = """__global__ void kernel(int* c) {
        __shared__ int flags[4];
        const int warp = threadIdx.x / 32;
        if (threadIdx.x < 4) flags[threadIdx.x] = 0;
        __syncthreads();
        if (threadIdx.x % 32 == 0) {
            const unsigned mine = __cvta_generic_to_shared(flags + warp);
            int seen = warp == (WAITED_FOR);
            while (!seen) asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(mine) : "memory");
            c[warp] = warp;
            const unsigned next = __cvta_generic_to_shared(flags + (warp + NEXT & 3));
            asm volatile("st.release.cta.shared.u32 [%0], 1;" :: "r"(next) : "memory");
        }
    }"""
    for next_, first in (("1", "0"), ("3", "3")):
        c = aligned(4, np.int32)
        launch = run(source.replace("NEXT", next_).replace("WAITED_FOR", first), 1, 128, c, max_instructions=100_000)
        assert c.tolist() == [0, 1, 2, 3]
        (polls,) = (one for one in launch.accesses if one.shared and one.access == 0)
        assert polls.requests == 3


READS = {
    "beside a lane that asks": '_Pragma("unroll 1") for (int k = 0; k < 8; k++) sum += x[t ? 32 * k + t : 0];',
    "written again and again": '_Pragma("unroll 1") for (int k = 0; k < 8; k++) y[t] = k;',
    "by other instructions": " ".join(["sum += x[t];"] * 8),
}


@pytest.mark.parametrize("body", READS.values(), ids=READS.keys())
def test_what_is_no_waiting_is_counted(run: Run, body: str) -> None:
    source = f"""__global__ void kernel(volatile float* x, volatile float* y) {{
        float sum = 0;
        int t = threadIdx.x;
        {body}
        y[t] = sum;
    }}"""
    launch = run(source, 1, 32, aligned(256), aligned(32))
    assert sum(one.requests for one in launch.accesses) == 9
    assert sum(one.sectors for one in launch.accesses) >= 36


COUNTED = {
    "volatile loads": ("for (int k = 0; k < n; k++) sum += *(volatile float*)(x + t);", 8),
    "relaxed loads": (
        "for (int k = 0; k < n; k++) { float v; asm volatile("
        '"ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(x + t)); sum += v; }',
        8,
    ),
    "a value may end the loop early": (
        "for (int k = 0; k < n; k++) { float v = *(volatile float*)(x + t); if (v == 77) break; sum += v; }",
        8,
    ),
    "within a loop that polls": (
        "do { for (int k = 0; k < n; k++) sum += *(volatile float*)(x + t); } while (*(volatile float*)y == 77);",
        8 + 1,
    ),
}
POLLED = {
    "alone": "while ((sum = *(volatile float*)(x + t)) == 77);",
    "all lanes": "while (__any_sync(~0u, (sum = *(volatile float*)(x + t)) == 77));",
    "sleeps longer and longer": (
        "unsigned ns = 8; while ((sum = *(volatile float*)(x + t)) == 77) { __nanosleep(ns); if (ns < 256) ns *= 2; }"
    ),
    "gives up": "int left = 1 << 20; while ((sum = *(volatile float*)(x + t)) == 77) if (--left < 0) __trap();",
}


def loads_of(run: Run, body: str, waits: bool) -> int:
    """Return the requests of block 0, which runs ``body`` while block 1 replaces 77 in x."""
    source = f"""__global__ void kernel(float* x, float* y, int n, int waits) {{
        const int t = threadIdx.x;
        if (blockIdx.x == 1) {{ if (waits) {{ __threadfence(); atomicExch(x + t, 1.0f); }} return; }}
        float sum = 0;
        _Pragma("unroll 1") {body}
        y[t + 1] = sum;
    }}"""
    x, y = aligned(32, np.float32), aligned(64, np.float32)
    x[:] = 77 if waits else 1
    launch = run(source, 2, 32, x, y, 8, int(waits), max_instructions=1 << 24)
    return sum(one.requests for one in launch.accesses if one.access == 0)


@pytest.mark.parametrize(("body", "requests"), COUNTED.values(), ids=COUNTED.keys())
def test_a_loop_that_counts_its_rounds_does_not_poll(run: Run, body: str, requests: int) -> None:
    assert loads_of(run, body, waits=False) == requests


@pytest.mark.parametrize("body", POLLED.values(), ids=POLLED.keys())
def test_a_loop_that_only_a_loaded_value_ends_polls(run: Run, body: str) -> None:
    """The compiler may put the first round before the loop: then two instructions load."""
    assert loads_of(run, body, waits=True) <= 2


def test_a_launch_is_freed_when_it_ends(run: Run) -> None:
    """The records of its blocks may have megabytes, which should not wait for a garbage collection."""
    source = "__global__ void kernel(float* a) { a[threadIdx.x] = 1; }"
    run(source, 1, 32, aligned(32))
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        run(source, 1, 32, aligned(32))
        gc.collect()
        left = {type(item).__name__ for item in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left.isdisjoint({"Grid", "Memory", "Cta", "Residents", "Launch"})
