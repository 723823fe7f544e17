"""Blocks run on several cores with the outcome of one core, byte for byte.

The outcome is everything that can be observed of a launch: the arrays, the counters, the samples of accesses, the
states of the bytes, the text that was printed, the fault, and the histories of the buffers with the turns of blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from machine.launching import FILE, aligned, buffer, compile_ptx
from warpcheck import simt
from warpcheck.frontends import cuda
from warpcheck.runtime import block_workers, kept_memory, launch, resident_blocks
from warpcheck.runtime.resident_blocks import max_turns
from warpcheck.schedule import Schedule
from warpcheck.target import TARGETS

THREADS = (1, 2, 4, 7)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let workers run every launch that qualifies, from its first block on. Return whether each run counted."""
    monkeypatch.setattr(launch, "PAUSE_CLOCK", 1)
    monkeypatch.setattr(block_workers, "MIN_CLOCK_LEFT", 0)
    monkeypatch.setattr(block_workers, "HISTORY_BYTE_TIME", 0)
    monkeypatch.setattr(block_workers, "SAVED_BYTE_TIME", 0)
    counted: list[bool] = []
    run = block_workers.Workers.run

    def observed(self: block_workers.Workers, *arguments: Any) -> bool:
        counted.append(run(self, *arguments))
        return counted[-1]

    monkeypatch.setattr(block_workers.Workers, "run", observed)
    return counted


@pytest.fixture(autouse=True)
def _kept_memory_is_zero() -> Iterator[None]:
    """Check that what launches keep for later ones is zero, whether their workers have been abandoned or not."""
    kept_memory._kept.clear()
    yield
    assert not any(memory.any() for memory in kept_memory._kept)


@dataclass(frozen=True)
class Case:
    """A kernel with arrays of random numbers, and whether the blocks are expected to run on several cores.

    Attributes:
        counts: Whether the run of the workers counts; None if the kernel does not qualify for one.
        arch: What it is compiled for.
    """

    name: str
    source: str
    counts: bool | None = True
    grid: tuple[int, ...] = (23,)
    block: tuple[int, ...] = (96,)
    shared: int = 0
    options: tuple[tuple[str, Any], ...] = ()
    arch: str = "compute_80"


HEAD = """
extern "C" __global__ void kernel(float* a, float* b, float* c, int* d, int n) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ float s[128];
    __shared__ int q[128];
"""


def body(text: str) -> str:
    # The header has hundreds of variables, each of which is a buffer.
    include = "#include <cooperative_groups.h>\n" * ("cooperative_groups" in text)
    return f"{include}{HEAD}{text}\n}}"


# ruff: noqa: E501
CASES = (
    Case("copy", body("if (i < n) c[i] = a[i] + b[i];")),
    Case("stores_of_bytes", body("if (i < n) ((char*)c)[i] = ((char*)a)[i + 1];")),
    Case("all_blocks_read_the_same", body("float x = 0; for (int k = 0; k < 40; k++) x += a[k] * b[k + t]; c[i] = x;")),
    Case("each_block_reads_what_some_others_read", body("c[i] = a[(i * 7) % 501] + a[(blockIdx.x & 3) + t];")),
    Case("reads_before_and_after_its_own_write", body("float x = c[i]; c[i] = x + 1; d[i] = (int)c[i] + (int)x;")),
    Case("merged_loads", body("float4 x = ((float4*)a)[i / 4]; float y = b[4 * t] + b[4 * t + 1]; c[i] = x.x + y;")),
    Case(
        "neighbors_in_shared_memory",
        body("s[t] = a[i]; __syncthreads(); if (t) c[i] = s[t - 1]; __syncthreads(); s[t] = c[i]; d[i] = s[t];"),
    ),
    Case(
        "shared_float_atomics",
        body("if (!t) s[0] = 0; __syncthreads(); atomicAdd(s, a[i]); __syncthreads(); if (!t) c[blockIdx.x] = s[0];"),
    ),
    Case(
        "a_histogram_in_shared_memory",
        body("q[t] = 0; __syncthreads(); d[i] = atomicAdd(q + (int)(a[i] * 9), 1); __syncthreads(); c[i] = q[t];"),
    ),
    Case("local_memory", body("float x[8]; for (int k = 0; k < 8; k++) x[(k * t) & 7] = a[k]; c[i] = x[t & 7];")),
    Case("divergence", body("for (int k = 0; k < (t & 7) + blockIdx.x; k++) if ((k ^ t) & 1) c[i] += a[k];")),
    Case("shuffles", body("float x = a[i]; for (int o = 16; o; o /= 2) x += __shfl_xor_sync(~0u, x, o); c[i] = x;")),
    Case("shuffle_from_a_lane_outside_of_the_mask", body("if (t & 1) c[i] = __shfl_sync(0xAAAAAAAA, a[i], t & ~1);")),
    Case("warp_synchronization", body("s[t] = a[i]; __syncwarp(); c[i] = s[t ^ 1]; __syncwarp(); s[t] = 1; d[i] = s[t];")),
    Case("a_fence_of_the_block", body("s[t] = a[i]; __threadfence_block(); c[i] = s[t];")),
    Case("blocks_of_different_length", body("for (int k = 0; k < 30 * blockIdx.x; k++) c[i] += a[k % 64];")),
    Case("more_blocks_than_parts", body("if (i < n) c[i] = a[i];"), grid=(301,), block=(32,)),
    Case("three_dimensions", body("int j = t + 4 * (blockIdx.y + 5 * blockIdx.z) + 97 * blockIdx.x; c[j] = a[j];"),
         grid=(3, 5, 2), block=(4,)),
    Case("compare_and_swap_in_shared_memory",
         body("if (!t) q[0] = 0; __syncthreads(); int x = q[0], y; do { y = x; x = atomicCAS(q, y, y + t); } while (x != y);"
              " __syncthreads(); d[i] = q[0];")),
    Case("asynchronous_copies",
         body('unsigned u = __cvta_generic_to_shared(s + t); asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(u), "l"(a + i));'
              ' asm volatile("cp.async.wait_all;" ::: "memory"); __syncthreads(); c[i] = s[95 - t];')),
    Case("instructions_that_some_blocks_execute",
         body("float* p = blockIdx.x < 5 ? &b[i] : s + t; if (blockIdx.x % 5 == 4) c[i] = a[2 * i]; s[t] = i; c[i] += *p;")),
    Case("variables_of_the_module", "__constant__ float k[64] = {1, 2, 3}; __device__ float g[4096];" + body("g[i] += k[t & 63]; c[i] = g[i];")),
    Case("one_value_by_all_threads_of_a_block", body("s[t] = a[i]; __syncthreads(); c[blockIdx.x] = s[0] + s[1];")),
    # Blocks that meet in global memory.
    Case("one_value_by_all_blocks", body("c[0] = 3; d[i] = 1;"), False),
    Case("one_value_by_two_distant_blocks", body("c[i] = 1; if (blockIdx.x % 11 == 2) c[9000 + t] = 3;"), False),
    Case("a_race_of_two_writes", body("c[t] = i; d[i] = 1;"), False),
    Case("a_race_with_the_last_block", body("if (i == 735) c[1] = 2; else if (!i) d[0] = (int)c[1]; d[i + 1] = 1;"),
         False, block=(32,)),
    Case("a_variable_that_another_block_writes", "__device__ int g;" + body("if (i == 2000) g = 7; d[i] = i == 100 ? g : 0;"), False),
    Case("a_write_behind_reads_of_others", body("c[i] = c[9000]; if (blockIdx.x == 9) c[9000] = 1;"), False),
    Case("a_store_to_a_buffer_that_other_blocks_do_not_write", body("if (blockIdx.x == 20) b[i] = 1; c[i] = 2;")),
    Case("global_atomics", body("atomicAdd(d, 1);"), None),
    Case("global_atomics_with_results", body("c[i] = atomicAdd(d, 1);"), None),
    Case("global_float_atomics", body("atomicAdd(c + (t & 3), a[i]);"), None),
    Case("compare_and_swap", body("int x = d[0], y; do { y = x; x = atomicCAS(d, y, y + t); } while (x != y);"), None),
    Case("generic_atomics", body("s[t] = 0; __syncthreads(); atomicAdd(t & 1 ? s + t : c + t, a[i]);"), None),
    Case(
        "the_last_block",
        body("__shared__ int last; c[i] = a[i]; __threadfence(); if (!t) last = atomicAdd(d, 1) == gridDim.x - 1;"
             " __syncthreads(); if (last) for (int k = t; k < 23; k += 96) b[0] = c[k];"),
        None,
    ),
    Case(
        "a_chain_of_blocks",
        body("volatile int* f = d; if (!t) { if (blockIdx.x) while (!f[blockIdx.x - 1]); c[blockIdx.x] = 1;"
             " __threadfence(); f[blockIdx.x] = 1; }"),
        None,
    ),
    Case("a_barrier_of_the_grid", body("c[i] = a[i]; cooperative_groups::this_grid().sync(); b[i] = c[n - 1 - i];"), None,
         grid=(4,), options=(("cooperative", True),)),
    Case("clusters", body("s[t] = i; auto g = cooperative_groups::this_cluster(); g.sync();"
                          " c[i] = *g.map_shared_rank(s + t, g.block_rank() ^ 1); g.sync();"), None,
         grid=(22,), options=(("cluster", (2,)),), arch="compute_90"),
    Case("the_clock", body("d[i] = clock64();"), None),
    # What the host does.
    Case("printf", body('c[i] = 1; if (!t) printf("block %d\\n", blockIdx.x);'), False),
    Case("printf_of_a_late_block", body('c[i] = 1; if (i == 2000) printf("thread %d\\n", i);'), False),
    Case("an_assertion", body("c[i] = 1; assert(i != 1700);"), False),
    Case("a_trap", body("c[i] = 1; if (i == 1701) __trap();"), False),
    Case("malloc", body("void* p = malloc(8); d[i] = p != nullptr; free(p);"), False),
    Case("threads_that_exit_before_a_barrier", body("if (t >= 64) return; s[t] = a[i]; __syncthreads(); c[i] = s[t ^ 1];"),
         False),
    Case("a_block_that_lets_others_run",
         body("unsigned x = t; if (blockIdx.x == 3) for (int k = 0; k < 60 * n; k++) x = x * 1664525 + (x >> k % 7); d[i] = x;"),
         False, grid=(6,), block=(32,)),
    # Faults.
    Case("out_of_bounds", body("c[i] = 1; if (blockIdx.x == 17) c[i + 100000] = 2;"), False),
    Case("unwritten_shared_memory", body("if (blockIdx.x != 12) s[t] = 1; c[i] = s[t];"), False),
    Case("a_race_in_shared_memory", body("s[t] = i; if (blockIdx.x != 19) __syncthreads(); c[i] = s[t ^ 32];"), False, block=(128,), grid=(22,)),
    Case("a_barrier_that_one_thread_skips", body("c[i] = 1; if (i != 1000) __syncthreads();"), False),
    Case("misaligned", body("c[i] = 1; if (i == 1500) *(int*)((char*)c + 2) = 1;"), False),
    # Limits.
    Case("the_limit_of_the_launch", body("for (int k = 0; k < n; k++) c[i] += a[k & 63];"), None,
         options=(("max_instructions", 1 << 21),)),
    Case("no_end", body("c[i] = 1; if (i == 1200) for (volatile float* p = s; !*p;) ;"), None,
         options=(("max_instructions", 1 << 21),)),
)  # fmt: skip


def _contains(array: npt.NDArray[Any], address: int | None) -> bool:
    return address is not None and 0 <= address - array.ctypes.data < array.nbytes


def outcome(module: simt.Module, name: str, case: Case, schedule: int, thread_count: int) -> dict[str, Any]:
    """Return everything that can be observed of a launch."""
    rng = np.random.default_rng(5)
    n = 2208
    for array in ARRAYS.values():
        array[:] = rng.integers(0, 2, array.size) if array.dtype == np.int32 else rng.random(array.size)
    ARRAYS["d"][:] = 0
    module = module.fresh()
    memory = simt.Memory()
    found: dict[str, Any] = {}
    try:
        result = module.launch(
            name,
            grid=case.grid,
            block=case.block,
            shared=case.shared,
            args=[*(array.ctypes.data for array in ARRAYS.values()), n],
            buffers=[buffer(key, array) for key, array in ARRAYS.items()],
            memory=memory,
            reverse=schedule,
            threads=thread_count,
            **dict(case.options),
        )
    except (simt.Fault, simt.TimedOut) as error:
        fields = {key: value for key, value in vars(error).items() if key != "launch"}
        # Shared memory is of a launch, and so are its addresses.
        if not any(_contains(array, fields.get("address")) for array in ARRAYS.values()):
            fields.pop("address", None)
        found["error"] = type(error), str(error), fields
    else:
        found["launch"] = result.lines, result.totals, result.instructions, result.printed, result.accesses
        found["states"] = {key: state.tobytes() for key, state in result.states.items()}
        grid = memory.last_launch
        turns = grid.get("turn_count")
        found["turns"] = [grid.array(key)[:turns].tolist() for key in ("turns", "turn_blocks")]
        found["fields"] = {key: grid.get(key) for key in ("clock", "clock_before_trigger", "clock_before_exit", "time")}
        start = ARRAYS["a"].ctypes.data
        found["reads"] = result.most_bytes_read(start, start + ARRAYS["a"].nbytes)
        found["writers"] = [result.writer(ARRAYS["c"].ctypes.data + 4 * element) for element in (0, 40, 900, 2000)]
        found["histories"] = {
            key: memory.shadows[array.ctypes.data, array.nbytes].history.tobytes() for key, array in ARRAYS.items()
        }
        found["time"] = memory.time
    found["arrays"] = {key: array.tobytes() for key, array in ARRAYS.items()}
    return found


ARRAYS: dict[str, npt.NDArray[Any]] = {
    **{key: aligned(9700) for key in "abc"},
    "d": aligned(9700, np.int32),
}


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_outcome_is_the_same_with_any_number_of_threads(case: Case, schedule: Schedule, runs: list[bool]) -> None:
    binary = cuda.compile_kernel(case.source, FILE, "kernel", case.arch)
    module = simt.Module(binary.ptx, FILE, TARGETS["sm_90a"])
    module.compile(binary.mangled)
    expected, *others = (outcome(module, binary.mangled, case, schedule, count) for count in THREADS)
    for count, found in zip(THREADS[1:], others, strict=True):
        for key in expected.keys() | found.keys():
            assert found.get(key) == expected.get(key), f"{key} with {count} threads"
    if case.name == "one_value_by_two_distant_blocks":
        return  # which one worker may have run: then there is no conflict
    assert runs == ([] if case.counts is None else [case.counts] * (len(THREADS) - 1))


def _outcomes(case: Case, *counts: int) -> list[dict[str, Any]]:
    binary = cuda.compile_kernel(case.source, FILE, "kernel", case.arch)
    module = simt.Module(binary.ptx, FILE)
    return [outcome(module, binary.mangled, case, Schedule.FORWARD, count) for count in counts or (1, 3)]


def test_a_store_to_a_buffer_that_is_not_saved_abandons_the_workers(
    runs: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_workers, "SAVING_SHARE", -1)
    expected, found = _outcomes(Case("late", body("c[i] = 2; if (blockIdx.x == 20) b[i] = 1;")))
    assert (found, runs) == (expected, [False])


def test_one_core_runs_the_blocks_where_no_thread_can_start(runs: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", fail)
    expected, found = _outcomes(Case("copy", body("c[i] = a[i];")))
    assert (found, runs) == (expected, [False])


def test_a_launch_may_have_had_more_turns_than_blocks(runs: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident_blocks, "MAX_WAITING_BYTES", 0)  # a block that yields has the next turn, too
    text = (
        "unsigned x = t; if (!blockIdx.x) for (int k = 0; k < 150 * n; k++) x = x * 1664525 + (x >> k % 7); d[i] = x;"
    )
    expected, found = _outcomes(Case("many turns", body(text), grid=(3,), block=(32,)), 1, 2)
    assert len(expected["turns"][0]) > 2 * max_turns(3)
    assert (found, runs) == (expected, [True])


# Each block but the first takes about 8 million lane-instructions: three warps, none of them four slices.
LATE_WORK = body(
    "unsigned x = t; if (blockIdx.x) for (int k = 0; k < 4 * n; k++) x = x * 1664525 + (x >> k % 7); d[i] = x;"
)


def test_workers_stop_when_they_exceed_the_limit_of_the_launch(
    runs: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(block_workers._WorkerLaunch, "note_samples", lambda _, part, requests: ended.append(part))
    expected, found = _outcomes(Case("late", LATE_WORK, options=(("max_instructions", 1 << 26),)), 1, 2)
    assert expected["error"][0] is simt.TimedOut
    assert (found, runs) == (expected, [False])
    assert len(ended) < 6  # of 22: the limit leaves less than half of its instructions to workers


def test_workers_do_not_run_what_is_likely_to_exceed_the_limit(runs: list[bool]) -> None:
    text = "unsigned x = t; for (int k = 0; k < 4 * n; k++) x = x * 1664525 + (x >> k % 7); d[i] = x;"
    expected, found = _outcomes(Case("even", body(text), options=(("max_instructions", 1 << 26),)), 1, 2)
    assert expected["error"][0] is simt.TimedOut
    assert (found, runs) == (expected, [])


def test_a_block_that_runs_far_longer_than_others_abandons_the_workers(
    runs: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_workers, "MIN_RUNAWAY_CLOCK", 1 << 22)
    text = "c[i] = 1; if (blockIdx.x == 12) for (;;) { __syncthreads(); s[t] = 1; }"
    options = ("max_instructions", 1 << 26), ("is_limit_per_block", True)
    expected, found = _outcomes(Case("no end", body(text), options=options), 1, 2)
    assert expected["error"][0] is simt.TimedOut
    assert (found, runs) == (expected, [False])


def test_memory_that_is_only_read_is_not_stored_to(runs: list[bool], tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(np.arange(2208, dtype=np.float32).tobytes())
    # A store to its pages ends the process.
    a = np.memmap(file, np.float32, "r")
    c = aligned(2208)
    text = body('c[i] = a[i]; if (i == 2000) printf("thread %d", i);')
    module, name = compile_ptx(text)
    launched = module.launch(
        name,
        grid=(23,),
        block=(96,),
        args=[a.ctypes.data, 0, c.ctypes.data, 0, 0],
        buffers=[buffer("a", a), buffer("c", c)],
        threads=2,
    )
    assert (runs, launched.printed) == ([False], "thread 2000")
    np.testing.assert_array_equal(c, a)


def test_the_histories_of_earlier_launches_are_kept(runs: list[bool]) -> None:
    texts = (
        "atomicAdd(d + t, 1); if (t < 4) atomicAdd(c + t + blockIdx.x, 1.f); b[i] = a[i / 2];",
        "c[i + 3000] = a[i * 7 % 501] + d[t] + d[95 - t] + c[t] + b[blockIdx.x * 3 % 23 * 96 + t];",
        "b[i] = d[t]; c[i] = 1; a[i] = c[i] + t;",
        "c[i + 3000] = a[i] + d[t];",
    )
    modules = [compile_ptx(body(text)) for text in texts]

    def histories(threads: int) -> list[dict[str, bytes]]:
        memory = simt.Memory()
        found = []
        for array in ARRAYS.values():
            array[:] = 0
        for module, name in modules:
            module.launch(
                name,
                grid=(23,),
                block=(96,),
                args=[*(array.ctypes.data for array in ARRAYS.values()), 2208],
                buffers=[buffer(key, array) for key, array in ARRAYS.items()],
                memory=memory,
                threads=threads,
            )
            shadows = {key: memory.shadows[array.ctypes.data, array.nbytes] for key, array in ARRAYS.items()}
            found.append({key: shadow.history.tobytes() for key, shadow in shadows.items()})
        return found

    expected = histories(1)
    assert all(histories(threads) == expected for threads in (2, 3))
    assert runs == [True] * 6


# Each thread follows a program of its own: in each word the lower three bits are an operation, the others an index.
PROGRAMS = """
extern "C" __global__ void kernel(const int* program, int* words, short* halves, int* sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, x = threadIdx.x;
    for (int k = 0; k < 8; k++) {
        int operation = program[8 * i + k] & 7, j = program[8 * i + k] >> 3;
        if (operation == 1) x += words[j];
        if (operation == 2) words[j] = x;
        if (operation == 3) x += halves[j];
        if (operation == 4) halves[j] = x;
        if (operation == 5) x += ((long long*)words)[j / 2];
        if (operation == 6) x += ((char*)halves)[j];
        if (program[k] & 1024) __syncthreads(); else __syncwarp();
    }
    sums[i] = x;
}
"""


def _random_programs(rng: np.random.Generator, conflicts: int) -> npt.NDArray[np.int64]:
    """Return the programs of 23 blocks of 96 threads: they read what others read, and write what is their own.

    Args:
        conflicts: How many more words they write, which may be of any thread.
    """
    operations = rng.integers(0, 7, (23, 96, 8))
    own = np.broadcast_to(400 + np.arange(23 * 96).reshape(23, 96, 1), operations.shape)
    shared = rng.integers(0, 300, operations.shape) // rng.choice([1, 7, 150])
    reads_own = np.isin(operations, (1, 3)) & (rng.random(operations.shape) < 0.3)
    indices = np.where(np.isin(operations, (2, 4)) | reads_own, own, shared)
    for _ in range(conflicts):
        place = rng.integers(23), rng.integers(96), rng.integers(8)
        operations[place], indices[place] = 2, rng.integers(2600)
    programs: npt.NDArray[np.int64] = operations + 8 * indices
    return programs


def test_random_accesses_have_the_outcome_of_one_core(runs: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    module, name = compile_ptx(PROGRAMS)
    arrays = {
        "program": aligned(23 * 96 * 8, np.int32),
        "words": aligned(4096, np.int32),
        "halves": aligned(4096, np.int16),
        "sums": aligned(23 * 96, np.int32),
    }

    def result(program: npt.NDArray[np.int64], schedule: Schedule, threads: int) -> list[Any]:
        for array in arrays.values():
            array[:] = np.arange(array.size) % 17
        arrays["program"][:] = program.reshape(-1)
        memory = simt.Memory()
        fresh = module.fresh()
        fresh.programs = {}  # in which no workers have been abandoned
        found: list[Any] = []
        try:
            launched = fresh.launch(
                name,
                grid=(23,),
                block=(96,),
                args=[array.ctypes.data for array in arrays.values()],
                buffers=[buffer(key, array) for key, array in arrays.items()],
                memory=memory,
                reverse=schedule,
                threads=threads,
            )
            found += [launched.lines, launched.accesses, memory.time]
        except simt.Fault as fault:
            found.append(str(fault))
        for array in arrays.values():
            shadow = memory.shadows[array.ctypes.data, array.nbytes]
            found += [array.tobytes(), shadow.state.tobytes(), shadow.history.tobytes()]
        return found

    rng = np.random.default_rng(11)
    for number in range(30):
        program = _random_programs(rng, conflicts=max(0, number - 20))
        schedule = list(Schedule)[number % 3]
        # From none to about two thirds of the blocks run before the workers begin.
        monkeypatch.setattr(launch, "PAUSE_CLOCK", int(rng.choice([1, 100_000, 300_000, 700_000])))
        expected = result(program, schedule, 1)
        for threads in (2, 3):
            assert result(program, schedule, threads) == expected, f"program {number} with {threads} threads"
    assert runs.count(True) >= 40
    assert runs.count(False) >= 4


@pytest.mark.parametrize("worker_count", [2, 3, 64])
@pytest.mark.parametrize("block_count", [1, 2, 7, 23, 255, 256, 4096, 1_000_003])
def test_parts_have_all_blocks_in_order(block_count: int, worker_count: int) -> None:
    parts = block_workers._divide(range(5, 5 + block_count), worker_count, 1000)
    assert [block for part in parts for block in part.blocks] == list(range(5, 5 + block_count))
    assert [part.number for part in parts] == list(range(len(parts)))
    sizes = [len(part.blocks) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) <= max(block_count // block_workers.LARGEST_SHARE, 1)
    # The last worker works alone for the time of one part at most.
    assert sizes[-1] <= max(block_count // block_workers.SMALLEST_SHARE, 1)


@pytest.mark.parametrize("block_count", [1, 23, 1_000_003])
def test_the_times_of_parts_fit_in_a_word_of_the_history(block_count: int) -> None:
    parts = block_workers._divide(range(block_count), 2, block_workers.MAX_TIME - 1)
    assert parts[0].began == block_workers.MAX_TIME - 1
    assert all(part.limit == following.began for part, following in pairwise(parts))
    assert parts[-1].limit < 1 << 31
