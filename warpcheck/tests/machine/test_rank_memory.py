"""Test launches that represent several ranks, blocks that run ahead of others, and the bytes that a block reads."""

from __future__ import annotations

import numpy as np
import pytest

from machine.launching import Run, aligned
from warpcheck import simt
from warpcheck.runtime.rank_memory import RankMemory
from warpcheck.simt import FaultKind

PULL = """__global__ void kernel(const int* a, int* b, int* flags) {
    int rank = blockIdx.y, peer = 1 - rank;
    BEFORE
    b[rank * 32 + threadIdx.x] = a[peer * 32 + threadIdx.x];
    AFTER
}"""

RAISE = "__syncthreads(); if (threadIdx.x == 0) { __threadfence_system(); atomicAdd_system(flags + peer, 1); }"
WAIT = """if (threadIdx.x == 0) {
        while (atomicAdd_system(flags + rank, 0) == 0) {}
        __threadfence_system();
    }
    __syncthreads();"""


def pull(run: Run, before: str, after: str, grid: tuple[int, int] = (1, 2)) -> list[int]:
    """Let each rank read the memory of its peer, and return what both have read."""
    a = aligned(64, np.int32)
    b = aligned(64, np.int32)
    flags = aligned(2, np.int32)
    a[:] = np.arange(64)
    memory = [RankMemory(rank, a.ctypes.data + 128 * rank, a.ctypes.data + 128 * (rank + 1)) for rank in range(2)]
    source = PULL.replace("BEFORE", before).replace("AFTER", after)
    run(source, grid, 32, a, b, flags, rank_memory=memory, cooperative=True)
    values: list[int] = b.tolist()
    return values


def test_a_rank_may_read_after_waiting_for_the_flag_of_its_peer(run: Run) -> None:
    assert pull(run, RAISE + WAIT, "") == [*range(32, 64), *range(32)]


@pytest.mark.parametrize(("before", "after"), [("", ""), ("", RAISE + WAIT), (RAISE, "")])
def test_a_rank_that_reads_without_waiting_for_its_peer_has_a_race(run: Run, before: str, after: str) -> None:
    with pytest.raises(simt.Fault, match=r"reads the memory of rank [01], and nothing orders this behind") as caught:
        pull(run, before, after)
    assert caught.value.kind is FaultKind.RACE


@pytest.mark.parametrize("system_scope", [RAISE, WAIT])
def test_a_flag_between_ranks_needs_system_scope(run: Run, system_scope: str) -> None:
    gpu_scope = system_scope.replace("Add_system", "Add")
    with pytest.raises(simt.Fault, match="the scope of a GPU orders none but the threads of one GPU") as caught:
        pull(run, (RAISE + WAIT).replace(system_scope, gpu_scope), "")
    assert caught.value.kind is FaultKind.RACE


def test_a_flag_between_blocks_of_one_rank_may_have_gpu_scope(run: Run) -> None:
    signal_own_rank = "if (threadIdx.x == 0) atomicAdd(flags + rank, blockIdx.x > 0 ? 0 : 1);"
    signal_peer = "if (threadIdx.x == 0) { __threadfence_system(); atomicAdd_system(flags + 2 + peer, 1); }"
    wait = """if (threadIdx.x == 0) {
            while (atomicAdd_system(flags + 2 + rank, 0) < gridDim.x) {}
            __threadfence_system();
        }
        __syncthreads();"""
    source = PULL.replace("BEFORE", f"{signal_own_rank} __syncthreads(); {signal_peer} {wait}").replace("AFTER", "")
    a = aligned(64, np.int32)
    b = aligned(64, np.int32)
    flags = aligned(4, np.int32)
    memory = [RankMemory(rank, a.ctypes.data + 128 * rank, a.ctypes.data + 128 * (rank + 1)) for rank in range(2)]
    run(source, (2, 2), 32, a, b, flags, rank_memory=memory, cooperative=True)
    assert flags.tolist() == [1, 1, 2, 2]


def test_reading_a_rank_without_blocks_is_a_race(run: Run) -> None:
    with pytest.raises(simt.Fault, match="reads the memory of rank 1, and nothing orders this behind"):
        pull(run, "", "", grid=(1, 1))


EARLIER_FLAG = """__global__ void kernel(int* a, int* b, int* flags) {
    int rank = blockIdx.x, peer = 1 - rank;
    a[rank] = rank + 1;
    __threadfence();
    atomicExch(flags + peer, 1);
    while (atomicAdd(flags + rank, 0) < 1) {}
    __threadfence();
    b[rank] = a[peer];
}"""


@pytest.mark.parametrize("flag", [0, 1])
def test_a_stale_flag_lets_a_block_read_unwritten_memory(run: Run, flag: int) -> None:
    a = aligned(2, np.int32)
    b = aligned(2, np.int32)
    flags = aligned(2, np.int32)
    flags[:] = flag
    arguments = EARLIER_FLAG, 2, 1, a, b, flags
    if flag == 0:
        run(*arguments, fresh=[0], cooperative=True, reverse=1_000_003)
        assert b.tolist() == [2, 1]
        return
    with pytest.raises(simt.Fault, match=r"reads 4 bytes at a\[[01]\], which nothing has written"):
        run(*arguments, fresh=[0], cooperative=True, reverse=1_000_003)


SHARES = """__global__ void kernel(const int* a, int* b) {
    int parts = PARTS, sum = 0;
    for (int i = blockIdx.x * 32 + threadIdx.x; i < 1024 && blockIdx.x < parts; i += 32 * parts) sum += a[i];
    b[blockIdx.x * 32 + threadIdx.x] = sum;
}"""


@pytest.mark.parametrize(("parts", "nbytes"), [(8, 512), (2, 2048), (1, 4096)])
def test_most_bytes_read_by_one_block(run: Run, parts: int, nbytes: int) -> None:
    """The size of the grid does not matter. With one part, seven of eight blocks read nothing."""
    a = aligned(1024, np.int32)
    b = aligned(256, np.int32)
    launch = run(SHARES.replace("PARTS", str(parts)), 8, 32, a, b)
    assert launch.most_bytes_read(a.ctypes.data, a.ctypes.data + a.nbytes) == nbytes
    assert launch.most_bytes_read(b.ctypes.data, b.ctypes.data + b.nbytes) == 0
