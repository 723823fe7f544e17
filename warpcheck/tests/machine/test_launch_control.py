"""Test cluster launch control, by which running blocks take over the work of blocks that have not started.

See PTX ISA, "clusterlaunchcontrol".
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from machine.launching import aligned, buffer
from warpcheck import simt
from warpcheck.frontends import cuda
from warpcheck.simt import FaultKind

# Each block processes its own tile, and the tiles of the clusters whose launch it cancels.
SOURCE = r"""
typedef unsigned u32;
typedef unsigned long long u64;
__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
#define DO(text, ...) asm volatile(text ";" :: __VA_ARGS__ : "memory")
extern "C" __global__ void tiles(u32* owner, u32* count, int width, int mode) {
    __shared__ alignas(16) u64 response[2];
    __shared__ u64 bar;
    u32 x = blockIdx.x, y = blockIdx.y, rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) DO("mbarrier.init.shared::cta.b64 [%0], 1", "r"(at(&bar)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (mode == 5 && rank == 1) return;
    for (int phase = 0;; phase ^= 1) {
        if (threadIdx.x == 0) {
            u32 bytes = mode == 4 ? 32 : 16;
            DO("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1", "r"(at(&bar)), "r"(bytes));  // promises
            if (rank == 0) {
                DO("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"  // requests
                   ".multicast::cluster::all.b128 [%0], [%1]", "r"(at(response)), "r"(at(&bar)));
            }
            atomicAdd(&owner[y * width + x], 1 + blockIdx.y * width + blockIdx.x);
            atomicAdd(count, 1);
        }
        if (mode != 1)
            DO("{.reg .pred q; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 q, [%0], %1; @!q bra AGAIN;}",
               "r"(at(&bar)), "r"(phase));
        u64 low = response[0], high = response[1];  // reads
        u32 canceled;
        asm volatile("{.reg .pred p; .reg .b128 r; mov.b128 r, {%3, %4};"
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r; selp.u32 %0, 1, 0, p;"
            "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, r;"
            "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %2, r;}"
            : "=r"(canceled), "+r"(x), "+r"(y) : "l"(low), "l"(high));
        x += rank;
        // The response may be overwritten once all threads have read it.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        if (mode != 3) asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
        if (!canceled) break;
    }
    if (mode == 6 && threadIdx.x == 0 && rank == 0) {
        DO("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16", "r"(at(&bar)));
        DO("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1]",  // again
           "r"(at(response)), "r"(at(&bar)));
    }
}
"""


@cache
def compiled() -> simt.Module:
    return simt.load(cuda.compile_kernel(SOURCE, "launches.cu", "tiles", "compute_100a").ptx, "launches.cu")


def run(mode: int = 0, reverse: int = 0, cluster: int = 2) -> tuple[Any, int]:
    """Return the number plus 1 of the block that processed each tile of a 6 x 3 grid, and the number of tiles."""
    owner = aligned((3, 6), np.uint32)
    count = aligned(1, np.uint32)
    owner[:] = count[:] = 0
    compiled().launch(
        "tiles",
        grid=(6, 3),
        block=(64,),
        args=[owner.ctypes.data, count.ctypes.data, 6, mode],
        buffers=[buffer("owner", owner), buffer("count", count)],
        cluster=(cluster,),
        reverse=reverse,
    )
    return owner, int(count[0])


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("reverse", [0, 1, 1_000_003])
def test_each_tile_is_processed_once(reverse: int, cluster: int) -> None:
    owner, count = run(0, reverse, cluster)
    assert count == 18
    # A tile that two blocks process would hold a sum that exceeds all block numbers.
    assert owner.min() >= 1
    assert owner.max() <= 18
    # The first cluster cancels all others.
    assert len(np.unique(owner)) == cluster


# The faults with the blocks in reverse order.
FAULTS: dict[int, tuple[FaultKind | None, str, str]] = {
    1: (FaultKind.UNINITIALIZED, "reads", "may still be writing: wait for its mbarrier first"),
    3: (FaultKind.RACE, "requests", "the copy has to wait for an mbarrier or a barrier"),
    4: (None, "promises", "promises 32 bytes, and 16 have landed"),
    5: (FaultKind.BAD_COPY, "requests", "has exited"),
    6: (FaultKind.BAD_COPY, "again", "has seen such a request fail"),
}


def line_of(mark: str) -> int:
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if line.endswith(f"// {mark}"))


@pytest.mark.parametrize("mode", FAULTS)
def test_a_mistake_with_launch_control_is_a_fault(mode: int) -> None:
    kind, mark, text = FAULTS[mode]
    with pytest.raises((simt.Fault, simt.TimedOut)) as caught:
        run(mode, 1)
    fault: Any = caught.value
    assert text in fault.message
    assert (fault.kind if isinstance(fault, simt.Fault) else None, fault.line) == (kind, line_of(mark))
