"""Provide the steps from a first GEMM with wgmma to the persistent one, which the notebook of week 22 counts and times.

The kernel has a switch for each step. The notebook does not print it, because it solves stars. Matrices are bfloat16, a
and b row-major, with sizes that are multiples of the tiles.
"""

# mypy: ignore-errors
# ruff: noqa: SIM102 (a condition of the trace and one of the kernel stay apart)

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from warpcheck.frontends import cute as lane

WARPGROUP = 128
"""The threads that issue a wgmma together: four warps."""
ROWS = 128
DEPTH = 64
"""The depth of a tile along k: 64 bfloat16 fill the 128 bytes of the widest swizzle."""
CHUNK = (64, 64)
"""The rows and columns that a warpgroup stores at once: the 64 rows of its wgmma, and 128 bytes of each."""


@dataclass(frozen=True)
class Rung:
    """The switches of a kernel that copies by TMA and multiplies with wgmma. Tiles have 128 rows.

    Attributes:
        producer: Let a warpgroup of its own copy; otherwise the first warp of the consumer copies.
        consumers: The number of warpgroups that multiply.
        persistent: Launch a block per multiprocessor, which goes from tile to tile.
        staged: Store the accumulators through shared memory and TMA.
        overlapped: Store without waiting for the copies or for the other consumers.
        peers: The blocks of a cluster in a column, which multicast their parts of b.
        group: The number of clusters in a column before the next column of tiles begins; 1 is row-major.
    """

    columns: int = 128
    stages: int = 4
    producer: bool = False
    consumers: int = 1
    staged: bool = False
    persistent: bool = False
    peers: int = 1
    group: int = 1
    overlapped: bool = False

    @property
    def buffers(self) -> int:
        return 2 if self.overlapped else 1


RUNGS = {
    "TMA + wgmma": Rung(),
    "a producer": Rung(producer=True),
    "two consumers": Rung(256, producer=True, consumers=2),
    "TMA store": Rung(256, producer=True, consumers=2, staged=True),
    "persistent": Rung(256, producer=True, consumers=2, staged=True, persistent=True),
    "overlapped store": Rung(256, producer=True, consumers=2, staged=True, persistent=True, overlapped=True),
    "tile order": Rung(256, producer=True, consumers=2, staged=True, persistent=True, overlapped=True, group=16),
    "clusters": Rung(256, producer=True, consumers=2, staged=True, persistent=True, overlapped=True, group=8, peers=2),
}
"""The steps, each of which changes one switch. With clusters, a group covers as many rows of tiles as without."""


def matmul(a: torch.Tensor, b: torch.Tensor, rung: Rung) -> torch.Tensor:
    out = a.new_empty(a.shape[0], b.shape[1])
    properties = torch.cuda.get_device_properties(a.device if a.is_cuda else None)
    lane.run(gemm, a, b.T, out, properties.multi_processor_count, rung)
    return out


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, processors: cutlass.Int32, rung: cutlass.Constexpr) -> None:
    """Compute out = a b^T for a [m, k], b [n, k] and out [m, n]."""
    dtype = a.element_type
    rows = LayoutEnum.ROW_MAJOR
    sums = cutlass.Float32
    one = (None, None, 0)
    order = LayoutEnum.from_tensor(b)
    majors = rows.sm90_mma_major_mode(), order.sm90_mma_major_mode()
    block = ROWS, rung.columns, DEPTH
    of_a = hopper.make_smem_layout_a(rows, block, dtype, rung.stages)
    of_b = hopper.make_smem_layout_b(order, block, dtype, rung.stages)
    of_out = hopper.make_smem_layout_epi(dtype, rows, CHUNK, rung.buffers * rung.consumers)
    alone = cpasync.CopyBulkTensorTileG2SOp()
    shared = cpasync.CopyBulkTensorTileG2SMulticastOp()
    tiles = out.shape[0] // ROWS * (out.shape[1] // rung.columns)
    blocks = cutlass.min(processors // rung.peers * rung.peers, tiles) if cutlass.const_expr(rung.persistent) else tiles
    multiply(
        rung,
        hopper.make_trivial_tiled_mma(dtype, dtype, *majors, sums, (rung.consumers, 1, 1), (64, rung.columns)),
        hopper.make_trivial_tiled_mma(dtype, dtype, *majors, sums, (1, 1, 1), CHUNK),
        (of_a, of_b, of_out),
        cpasync.make_tiled_tma_atom(alone, a, cute.slice_(of_a, one), (ROWS, DEPTH)),
        cpasync.make_tiled_tma_atom(
            shared if rung.peers > 1 else alone, b, cute.slice_(of_b, one), (rung.columns, DEPTH), rung.peers
        ),
        cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), out, cute.slice_(of_out, one), CHUNK),
        out,
    ).launch(
        grid=[blocks, 1, 1],
        block=[WARPGROUP * (rung.consumers + rung.producer), 1, 1],
        cluster=[rung.peers, 1, 1],
        min_blocks_per_mp=1,
    )


@cute.kernel
def multiply(rung: cutlass.Constexpr, mma, chunk_mma, layouts, a, b, store, out):
    (of_a, of_b, of_out), (load_a, a), (load_b, b), (store, chunks) = layouts, a, b, store
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(thread // 32)
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, rung.stages)
    empty = memory.allocate_array(cutlass.Int64, rung.stages)
    # A swizzle of 128 bytes repeats after 8 rows, so wgmma and TMA take tiles that begin at a multiple of 1024 bytes.
    # Source: PTX ISA, "Matrix Descriptor Format", base offset.
    shared_a = memory.allocate_tensor(load_a.value_type, of_a.outer, 1024, of_a.inner)
    shared_b = memory.allocate_tensor(load_b.value_type, of_b.outer, 1024, of_b.inner)
    shared_out = memory.allocate_tensor(store.value_type, of_out.outer, 1024, of_out.inner)
    if warp == 0:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(rung.stages):
                # full: the thread that issues the copies arrives. empty: a lane of each consumer warp of the cluster
                # arrives, since the copies of b write to all of its blocks.
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 4 * rung.consumers * rung.peers)
        cute.arch.mbarrier_init_fence()
    # The mbarriers of all peers must be initialized before a block arrives at them.
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()

    down = out.shape[0] // (ROWS * rung.peers)
    across = out.shape[1] // rung.columns
    walk = block // rung.peers, down * across, blocks // rung.peers, down, across, rank
    steps = a.shape[1] // DEPTH
    blocks_a = cute.local_tile(a, (ROWS, DEPTH), (None, None))
    blocks_b = cute.local_tile(b, (rung.columns, DEPTH), (None, None))
    to_a, from_a = cpasync.tma_partition(
        load_a, 0, cute.make_layout(1), cute.group_modes(shared_a, 0, 2), cute.group_modes(blocks_a, 0, 2)
    )
    to_b, from_b = cpasync.tma_partition(
        load_b, rank, cute.make_layout(rung.peers), cute.group_modes(shared_b, 0, 2), cute.group_modes(blocks_b, 0, 2)
    )
    source = (full, empty), (load_a, from_a, to_a), (load_b, from_b, to_b)
    if cutlass.const_expr(rung.producer):
        if warp < 4:
            if cutlass.const_expr(rung.consumers > 1):
                # 128 threads with 40 registers and 256 with 232 need 64,512 of the multiprocessor's 65,536.
                cute.arch.setmaxregister_decrease(40)
            if warp == 0:
                produce(rung, walk, steps, source)
        else:
            if cutlass.const_expr(rung.consumers > 1):
                cute.arch.setmaxregister_increase(232)
            consume(rung, walk, steps, source, mma, chunk_mma, shared_a, shared_b, shared_out, store, chunks, out)
    else:
        consume(rung, walk, steps, source, mma, chunk_mma, shared_a, shared_b, shared_out, store, chunks, out)
    # A peer may still arrive at the mbarriers of a block that has nothing left to do.
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def tile_of(rung: cutlass.Constexpr, number, down, across, rank):
    first = number // (rung.group * across) * rung.group
    within = number % (rung.group * across)
    height = cutlass.min(down - first, rung.group)
    return (first + within % height) * rung.peers + rank, within // height


@cute.jit
def fill(rung: cutlass.Constexpr, count, row, column, step, source):
    (full, empty), (load_a, from_a, to_a), (load_b, from_b, to_b) = source
    stage = count % rung.stages
    mask = cutlass.Int16(2**rung.peers - 1) if cutlass.const_expr(rung.peers > 1) else None
    # The opposite parity: on the first round of the ring, when every stage is empty, the wait for the phase before the
    # first one returns at once. Source: PTX ISA, "mbarrier.test_wait, mbarrier.try_wait", .parity.
    cute.arch.mbarrier_wait(empty + stage, count // rung.stages % 2 ^ 1)
    with cute.arch.elect_one():
        # The bytes of the whole stage, with the parts of b that the other peers multicast.
        cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * DEPTH * (ROWS + rung.columns))
    cute.copy(load_a, from_a[None, row, step], to_a[None, stage], tma_bar_ptr=full + stage)
    cute.copy(load_b, from_b[None, column, step], to_b[None, stage], tma_bar_ptr=full + stage, mcast_mask=mask)


@cute.jit
def produce(rung: cutlass.Constexpr, walk, steps, source):
    first, last, stride, down, across, rank = walk
    count = cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        row, column = tile_of(rung, number, down, across, rank)
        for step in cutlass.range(steps, unroll=1):
            fill(rung, count, row, column, step, source)
            count += 1


@cute.jit
def consume(
    rung: cutlass.Constexpr, walk, steps, source, mma, chunk_mma, shared_a, shared_b, shared_out, store, chunks, out
):
    (first, last, stride, down, across, rank), (full, empty) = walk, source[0]
    thread, _, _ = cute.arch.thread_idx()
    thread = thread - WARPGROUP if cutlass.const_expr(rung.producer) else thread
    warp = cute.arch.make_warp_uniform(thread // 32)
    peer = thread % 32
    mine = mma.get_slice(thread)
    of_a = mma.make_fragment_A(mine.partition_A(shared_a))
    of_b = mma.make_fragment_B(mine.partition_B(shared_b))
    total = cute.make_rmem_tensor(mma.partition_shape_C((ROWS, rung.columns)), cutlass.Float32)
    count = cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        row, column = tile_of(rung, number, down, across, rank)
        if cutlass.const_expr(not rung.producer):
            if warp == 0:
                for step in cutlass.range(cutlass.min(steps, rung.stages - 1), unroll=1):
                    fill(rung, step, row, column, step, source)
        for step in cutlass.range(steps, unroll=1):
            stage = count % rung.stages
            cute.arch.mbarrier_wait(full + stage, count // rung.stages % 2)
            warpgroup.fence()
            mma.set(warpgroup.Field.ACCUMULATE, step > 0)
            for part in cutlass.range_constexpr(DEPTH // 16):
                cute.gemm(mma, total, of_a[None, None, part, stage], of_b[None, None, part, stage], total)
                mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            # The wgmma group of this step stays in flight. The group of the previous step is complete, so its stage may
            # be filled again.
            warpgroup.wait_group(1)
            if step > 0 and peer < rung.peers:
                cute.arch.mbarrier_arrive(empty + (count - 1) % rung.stages, peer)
            if cutlass.const_expr(not rung.producer):
                ahead = step + rung.stages - 1
                if warp == 0 and ahead < steps:
                    fill(rung, ahead, row, column, ahead, source)
            count += 1
        warpgroup.wait_group(0)
        if peer < rung.peers:
            cute.arch.mbarrier_arrive(empty + (count - 1) % rung.stages, peer)
        if cutlass.const_expr(rung.staged):
            write(rung, thread, row, column, total, chunk_mma, shared_out, store, chunks)
        else:
            tile = cute.local_tile(out, (ROWS, rung.columns), (row, column))
            rounded = cute.make_rmem_tensor_like(total, out.element_type)
            rounded.store(total.load().to(out.element_type))
            cute.autovec_copy(rounded, mine.partition_C(tile))
    if cutlass.const_expr(rung.overlapped):
        if warp % 4 == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def write(rung: cutlass.Constexpr, thread, row, column, total, mma, shared_out, store, chunks):
    """Store the accumulator chunk by chunk through shared memory.

    Unless stores overlap, all consumers wait until the copies have read shared memory.
    """
    worker = cute.arch.make_warp_uniform(thread // WARPGROUP)
    leads = cute.arch.make_warp_uniform(thread // 32) % 4 == 0
    waiting = WARPGROUP if rung.overlapped else WARPGROUP * rung.consumers
    barrier = 1 + worker if cutlass.const_expr(rung.overlapped) else 1
    buffers = cute.local_tile(shared_out, (*CHUNK, rung.buffers), (0, 0, worker))
    atom = hopper.sm90_get_smem_store_op(LayoutEnum.ROW_MAJOR, store.value_type, cutlass.Float32)
    to_shared = cute.make_tiled_copy_C(atom, mma).get_slice(thread % WARPGROUP)
    tiles = cute.local_tile(chunks, CHUNK, (None, None))
    from_shared, to_out = cpasync.tma_partition(
        store, 0, cute.make_layout(1), cute.group_modes(buffers, 0, 2), cute.group_modes(tiles, 0, 2)
    )
    sums = cute.make_rmem_tensor(mma.partition_shape_C(CHUNK), cutlass.Float32)
    rounded = cute.make_rmem_tensor_like(sums, store.value_type)
    wide = rung.columns // CHUNK[1]
    for chunk in cutlass.range_constexpr(cute.size(total) // cute.size(sums)):
        for i in cutlass.range_constexpr(cute.size(sums)):
            sums[i] = total[chunk * cute.size(sums) + i]
        rounded.store(sums.load().to(store.value_type))
        buffer = chunk % rung.buffers
        if leads:
            cute.arch.cp_async_bulk_wait_group(min(chunk, rung.buffers - 1), read=True)
        cute.arch.barrier(barrier_id=barrier, number_of_threads=waiting)
        cute.copy(atom, to_shared.retile(rounded), to_shared.partition_D(buffers)[None, None, None, buffer])
        # TMA reads shared memory through the async proxy, to which the threads' stores are not visible without this
        # fence. Source: PTX ISA, "Async proxy".
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=barrier, number_of_threads=waiting)
        if leads:
            down = row * 2 + chunk // wide * rung.consumers + worker
            across = column * wide + chunk % wide
            cute.copy(store, from_shared[None, buffer], to_out[None, down, across])
            cute.arch.cp_async_bulk_commit_group()
    if cutlass.const_expr(not rung.overlapped):
        if leads:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.barrier(barrier_id=barrier, number_of_threads=waiting)
