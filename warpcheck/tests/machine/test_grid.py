"""Test blocks that wait for each other: grid-wide barriers of cooperative launches, and flags in global memory."""

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


def make_arrays(size: int) -> list[np.ndarray[Any, Any]]:
    """Return a, b, and c of this size. a counts up from 0, b and c are zero."""
    a, b, c = (aligned(size) for _ in range(3))
    a[:] = np.arange(size)
    return [a, b, c]


@pytest.mark.parametrize(("blocks", "threads"), [(1, 64), (5, 32), (13, 96)])
@pytest.mark.parametrize("reverse", [False, True])
def test_grid_sync_orders_all_blocks(run: Run, blocks: int, threads: int, reverse: bool) -> None:
    a, b, c = make_arrays(blocks * threads)
    launch = run(NEIGHBOURS, blocks, threads, a, b, c, 3, fresh=[1, 2], cooperative=True, reverse=reverse)
    assert c.tolist() == (np.roll(a, -32) + 2).tolist()
    author = launch.writer(c.ctypes.data + 4 * 33)
    assert author is not None
    assert (author.block, author.thread) == (str(33 // threads), str(33 % threads))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("barrier", ["before the next write", "instead of the first"])
def test_a_missing_grid_sync_is_a_race(run: Run, barrier: str, reverse: bool) -> None:
    lines = NEIGHBOURS.splitlines()
    removed = next(
        n for n, line in enumerate(lines) if "grid.sync" in line and (barrier in line) == ("before" in barrier)
    )
    lines[removed] = "__syncthreads();"
    with pytest.raises(simt.Fault) as caught:
        run("\n".join(lines), 4, 32, *make_arrays(128), 3, cooperative=True, reverse=reverse)
    assert caught.value.kind is FaultKind.RACE
    assert caught.value.line in (7, 9)


def test_grid_sync_in_a_launch_that_is_not_cooperative_traps(run: Run) -> None:
    with pytest.raises(
        simt.Fault, match=r"stops at a trap: grid.sync\(\) needs a launch with cooperative=True"
    ) as caught:
        run(NEIGHBOURS, 2, 32, *make_arrays(64), 1)
    assert (caught.value.kind, caught.value.line) == (FaultKind.TRAP, 8)


def test_a_cooperative_grid_that_exceeds_the_gpu_is_an_error(run: Run) -> None:
    source = "__global__ void kernel(int* a) { extern __shared__ int s[]; s[threadIdx.x] = a[0]; }"
    a = aligned(1, np.int32)
    # sm_80 has 108 SMs, and 100,000 bytes of shared memory leave room for one block on each.
    run(source, 108, 1, a, shared=100_000, cooperative=True)
    with pytest.raises(ValueError, match="too many blocks in cooperative launch: 109, and 108 fit, 1 on each of 108"):
        run(source, 109, 1, a, shared=100_000, cooperative=True)


def test_a_block_that_exits_before_grid_sync_causes_a_deadlock(run: Run) -> None:
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


def make_chain_source(spelling: str, order: str) -> str:
    """Return the source of the scan in which each block waits for the flag of its predecessor."""
    wait, put = SPELLINGS[spelling]
    include = "#include <cuda/atomic>\n" * ("cuda" in spelling)
    return f"{include}#define WAIT(p) {wait}\n#define SET(p) {put}\n#define ORDER {order}\n{CHAIN}"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("order", ["blockIdx.x", "gridDim.x - 1 - blockIdx.x"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_block_waits_for_the_flag_of_its_predecessor(run: Run, spelling: str, order: str, reverse: bool) -> None:
    """A scan with look-back works like this. The block that the GPU starts first doesn't matter."""
    a, flags, sums, c = (aligned(size, np.int32) for size in (40, 40, 40, 40 * 64))
    a[:] = np.arange(1, 41)
    run(make_chain_source(spelling, order), 40, 64, a, flags, sums, c, fresh=[2, 3], reverse=reverse)
    assert sums.tolist() == np.cumsum(a).tolist()
    assert c[::64].tolist() == [0, *np.cumsum(a)[:-1]]


def test_a_deadlock_names_the_blocks_that_have_not_started(run: Run) -> None:
    """Each of 108 multiprocessors has room for one block, and block b waits for the block after it."""
    arrays = [aligned(size, np.int32) for size in (110, 110, 110, 110 * 64)]
    with pytest.raises(simt.Deadlock) as caught:
        run(make_chain_source("atomicAdd", "gridDim.x - 1 - blockIdx.x"), 110, 64, *arrays, shared=100_000)
    assert (
        "; 2 of 110 blocks have not started, and none will before another one ends: if a block waits for one of them, "
        "let blocks take their numbers from a counter (atomicAdd), and not from blockIdx; warp 0 of block 0 waits in "
    ) in caught.value.message


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
def test_a_block_that_polls_across_a_barrier_yields_to_other_blocks(run: Run, loop: str, reverse: bool) -> None:
    source = f"""__global__ void kernel(int* flag, int* out) {{
        __shared__ int done;
        int t = threadIdx.x, go = 0;
        if (blockIdx.x % 2 == {int(reverse)}) {{ {loop} if (t == 0) out[0] = 7; }}
        else if (t == 0) {{ __threadfence(); atomicExch(flag, 1); }}
    }}"""
    flag = aligned(1, np.int32)
    out = aligned(1, np.int32)
    run(source, 2, 64, flag, out, reverse=reverse, max_instructions=1 << 26)
    assert out[0] == 7


@pytest.mark.parametrize(
    ("loop", "schedule"),
    [
        ("atomics", {}),
        ("atomics", {"cooperative": True}),
        ("volatile loads", {"reverse": True}),
        ("after warps have left", {"reverse": True}),
    ],
)
def test_blocks_that_poll_with_barriers_in_their_loops_may_be_a_deadlock(
    run: Run, loop: str, schedule: dict[str, bool]
) -> None:
    """Each block waits for a flag that the other one sets after its own wait."""
    source = f"""__global__ void kernel(int* flags) {{
        __shared__ int done;
        int t = threadIdx.x, go = 0;
        int* flag = flags + blockIdx.x;
        {POLLS[loop]}
        if (t == 0) atomicExch(flags + 1 - blockIdx.x, 1);
    }}"""
    with pytest.raises(
        simt.Deadlock, match=r"a deadlock: every remaining thread waits for another one; warps? .* line [56]"
    ):
        run(source, 2, 64, aligned(2, np.int32), max_instructions=1 << 26, **schedule)


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize(
    "work",
    [
        "float x = t; for (int i = 0; i < 100000; ++i) x = x * 0.999f + 1; out[1] = x;",  # no signal for a long time
        "for (int i = 1; i < 2000; ++i) atomicAdd(out + 1, 1);",
        "for (int i = 0; i < 300; ++i) if (t == 0) { atomicExch(out + 1, 1); while (atomicAdd(out + 1, 0) == 0); }",
    ],
)
def test_blocks_that_poll_while_one_works_are_no_deadlock(run: Run, work: str, cooperative: bool) -> None:
    source = f"""__global__ void kernel(int* flag, int* out) {{
        __shared__ int done;
        int t = threadIdx.x, go = 0;
        if (blockIdx.x > 0) {{ {POLLS["atomics"]} if (t == 0) atomicAdd(out, 7); }}
        else if (t == 0) {{ {work} __threadfence(); atomicExch(flag, 1); }}
    }}"""
    flag = aligned(1, np.int32)
    out = aligned(2, np.int32)
    run(source, 3, 64, flag, out, cooperative=cooperative)
    assert out[0] == 14


def test_blocks_that_take_turns_are_no_deadlock(run: Run) -> None:
    """Each turn is short, and begins with a wait for the other block in a loop with a barrier."""
    source = """__global__ void kernel(int* turn, int* out) {
        __shared__ int done;
        int t = threadIdx.x;
        for (int i = 0; i < 400; ++i) {
            int go;
            do { if (t == 0) done = atomicAdd(turn, 0) % 2 == blockIdx.x; __syncthreads(); go = done; __syncthreads(); }
            while (!go);
            if (t == 0) { atomicAdd(out, 1); __threadfence(); atomicAdd(turn, 1); }
        }
    }"""
    turn = aligned(1, np.int32)
    out = aligned(1, np.int32)
    run(source, 2, 64, turn, out, cooperative=True)
    assert out[0] == 800


def test_a_flag_without_a_fence_is_a_race(run: Run) -> None:
    source = make_chain_source("volatile", "gridDim.x - 1 - blockIdx.x")
    last = source.rindex("        __threadfence();\n")
    arrays = [aligned(8, np.int32) for _ in range(3)]
    with pytest.raises(simt.Fault) as caught:
        run(source[:last] + "\n" + source[last + 25 :], 8, 32, *arrays, aligned(256, np.int32))
    assert caught.value.kind is FaultKind.RACE


def test_a_block_that_waits_forever_times_out(run: Run) -> None:
    source = make_chain_source("volatile", "gridDim.x - 1 - blockIdx.x").replace("SET(flags + block);", "")
    arrays = [aligned(8, np.int32) for _ in range(3)]
    with pytest.raises(simt.TimedOut) as caught:
        run(source, 8, 32, *arrays, aligned(256, np.int32))
    assert source.splitlines()[caught.value.line - 1].strip().startswith("while (WAIT")


def test_waiting_blocks_have_their_own_shared_memory(run: Run) -> None:
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
    flag = aligned(1, np.int32)
    c = aligned(6 * 64, np.int32)
    launch = run(source, 6, 64, flag, c)
    assert c.tolist() == [block * 100 + 63 - t for block in range(6) for t in range(64)]
    loads = [access for access in launch.accesses if access.shared and access.access == 0]
    assert [access.buffer for access in loads] == ["s"]


def test_exceeding_the_instruction_limit_reports_the_finished_blocks(run: Run) -> None:
    source = "__global__ void kernel(int* a) { for (int k = 0; k < 100; k++) a[blockIdx.x * 32 + threadIdx.x] += k; }"
    with pytest.raises(
        simt.TimedOut, match=r"still running after 1,000,000 instructions, with [0-9,]+ of 10,000 blocks done: too"
    ):
        run(source, 10_000, 32, aligned(320_000, np.int32), max_instructions=1_000_000)


def test_a_limit_per_block_applies_to_each_block_alone(run: Run) -> None:
    short_blocks = (
        "__global__ void kernel(int* a) { for (int k = 0; k < 2000; k++) a[blockIdx.x * 32 + threadIdx.x] += k; }"
    )
    limit = {"max_instructions": 1 << 25, "is_limit_per_block": True}
    run(
        short_blocks, 300, 32, aligned(9_600, np.int32), **limit
    )  # more instructions than the limit in total, but not in any block
    endless = "__global__ void kernel(int* a) { while (blockIdx.x == 299) a[blockIdx.x * 32 + threadIdx.x] += 1; }"
    with pytest.raises(simt.TimedOut, match=r"a loop that does not end\?"):
        run(endless, 300, 32, aligned(9_600, np.int32), **limit)


def test_polls_count_as_one_request_per_warp(run: Run) -> None:
    """The number of polls depends on timing. Memory of the driver does not belong to the kernel."""
    source = make_chain_source("volatile", "gridDim.x - 1 - blockIdx.x")
    launch = run(source, 8, 32, *(aligned(8, np.int32) for _ in range(3)), aligned(256, np.int32))
    (polls,) = (access for access in launch.accesses if access.buffer == "b" and access.access == 0)
    assert (polls.requests, polls.sectors) == (7, 7)
    launch = run(NEIGHBOURS, 5, 32, *make_arrays(160), 2, cooperative=True)
    assert {access.buffer for access in launch.accesses} == {"a", "b", "c"}


def test_polls_of_shared_memory_are_few_and_counted_once(run: Run) -> None:
    """Cooperative groups of several warps synchronize like this, without a barrier."""
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
    for successor, predecessor in (("1", "0"), ("3", "3")):
        c = aligned(4, np.int32)
        launch = run(
            source.replace("NEXT", successor).replace("WAITED_FOR", predecessor), 1, 128, c, max_instructions=100_000
        )
        assert c.tolist() == [0, 1, 2, 3]
        (polls,) = (access for access in launch.accesses if access.shared and access.access == 0)
        assert polls.requests == 3


REPEATED_ACCESSES = {
    "beside a lane that asks": '_Pragma("unroll 1") for (int k = 0; k < 8; k++) sum += x[t ? 32 * k + t : 0];',
    "written again and again": '_Pragma("unroll 1") for (int k = 0; k < 8; k++) y[t] = k;',
    "by other instructions": " ".join(["sum += x[t];"] * 8),
}


@pytest.mark.parametrize("body", REPEATED_ACCESSES.values(), ids=REPEATED_ACCESSES.keys())
def test_repeated_accesses_that_are_no_polls_are_counted(run: Run, body: str) -> None:
    source = f"""__global__ void kernel(volatile float* x, volatile float* y) {{
        float sum = 0;
        int t = threadIdx.x;
        {body}
        y[t] = sum;
    }}"""
    launch = run(source, 1, 32, aligned(256), aligned(32))
    assert sum(access.requests for access in launch.accesses) == 9
    assert sum(access.sectors for access in launch.accesses) >= 36


COUNTED_LOOPS = {
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
POLLING_LOOPS = {
    "alone": "while ((sum = *(volatile float*)(x + t)) == 77);",
    "all lanes": "while (__any_sync(~0u, (sum = *(volatile float*)(x + t)) == 77));",
    "sleeps longer and longer": (
        "unsigned ns = 8; while ((sum = *(volatile float*)(x + t)) == 77) { __nanosleep(ns); if (ns < 256) ns *= 2; }"
    ),
    "gives up": "int left = 1 << 20; while ((sum = *(volatile float*)(x + t)) == 77) if (--left < 0) __trap();",
}


def count_load_requests(run: Run, body: str, waits: bool) -> int:
    """Return the load requests of block 0, which runs ``body`` while block 1 replaces the values 77 in x."""
    source = f"""__global__ void kernel(float* x, float* y, int n, int waits) {{
        const int t = threadIdx.x;
        if (blockIdx.x == 1) {{ if (waits) {{ __threadfence(); atomicExch(x + t, 1.0f); }} return; }}
        float sum = 0;
        _Pragma("unroll 1") {body}
        y[t + 1] = sum;
    }}"""
    x = aligned(32, np.float32)
    y = aligned(64, np.float32)
    x[:] = 77 if waits else 1
    launch = run(source, 2, 32, x, y, 8, int(waits), max_instructions=1 << 24)
    return sum(access.requests for access in launch.accesses if access.access == 0)


@pytest.mark.parametrize(("body", "requests"), COUNTED_LOOPS.values(), ids=COUNTED_LOOPS.keys())
def test_a_loop_with_a_trip_count_does_not_poll(run: Run, body: str, requests: int) -> None:
    assert count_load_requests(run, body, waits=False) == requests


@pytest.mark.parametrize("body", POLLING_LOOPS.values(), ids=POLLING_LOOPS.keys())
def test_a_loop_that_only_a_loaded_value_ends_is_a_poll(run: Run, body: str) -> None:
    """The compiler may peel the first iteration. Then two instructions load."""
    assert count_load_requests(run, body, waits=True) <= 2


def test_a_launch_is_freed_when_it_ends(run: Run) -> None:
    """The records of its blocks may take megabytes, so they must not wait for a garbage collection."""
    source = "__global__ void kernel(float* a) { a[threadIdx.x] = 1; }"
    run(source, 1, 32, aligned(32))
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        run(source, 1, 32, aligned(32))
        gc.collect()
        leaked_types = {type(item).__name__ for item in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert leaked_types.isdisjoint({"Grid", "Memory", "Cta", "Residents", "Launch"})
