"""Persistent GEMM for Hopper: a producer, two consumers, and clusters that share their loads.

matmul(a, b) takes bfloat16 matrices of shapes (m, k) and (k, n), of any nonzero size, each stored in row-major or
column-major order without gaps. It returns a @ b as a new contiguous bfloat16 tensor of shape (m, n). The accumulators
are float32 and rounded once. Every tensor starts at a multiple of 16 bytes and has fewer than 2**31 elements. TMA also
requires that every row of a row-major matrix, and every column of a column-major matrix, starts at such a multiple.
Otherwise, a kernel in this file copies the matrix to wider rows first, and the result back. The file also contains the
layouts, the mbarriers and the choice of tiles.

A block has three warpgroups. One warp of the first fills the stages of a circular buffer by TMA. The other two are
consumers, which multiply 64 rows of the tile each and store their accumulators. A stage has two mbarriers. A phase of
`full` completes when the bytes of the stage have arrived, and a phase of `empty` when every consumer has read them. The
circular buffer continues from tile to tile: k-tile number `count` uses stage count % stages, and the parity of count //
stages is the phase to wait for.

Two blocks form a cluster, with one tile below the other. Both need the same k-tile of b, so each loads half of it and
multicasts this half to both. A stage is therefore empty when the consumers of both blocks have released it.

Write `tile_of`, `produce`, `consume` and `write`. GEMMs that are too small for tiles of 128 x 256 use smaller tiles,
some with one consumer, or clusters of horizontal neighbors, which share k-tiles of a. The grader checks the values, the
use of tensor cores, and the requested bytes, and on a GPU compares the time with cuBLAS.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. In total, global
memory accesses may move at most 6 times the size of the inputs and outputs. The multiply-adds must run on tensor cores.

Operations: 2 m n k, 1.1e12 at 8192^3. The tensor cores are the limit, and their speed also depends on the data.

Measured against cuBLAS on an H200, each pair in one run, several runs where a range is given:

    512^3 0.91 to 0.92    1024^3 0.91 to 1.01    2048^3 0.96 to 0.97    3072^3 0.99    4096^3 1.00 to 1.01
    8192^3 1.02 (1,363 us)    16384^3 1.03    4096^3 in the other layouts 1.01    4096 x 4096 by 4104 along k 1.00
    8192 x 8192 by 16 rows 0.83 to 0.91, by 64 rows 0.96, by 128 rows 0.95 to 0.98, by 256 rows 0.94
    4095 x 4097 by 4099, where everything is copied first, 2.36 to 2.47
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

# Threads of a warpgroup.
WARPGROUP = 128
# Columns of a and rows of b in a stage: 128 bytes, the width of the widest swizzle.
DEPTH = 64
# The shape of a chunk. A consumer rounds and stores its 64 or more rows of the tile one chunk at a time.
CHUNK = (64, 64)
# Chunks that a consumer has in shared memory: one is written while the other is copied to out.
BUFFERS = 2
# Height of a group of clusters, in clusters. Clusters that run together share a and b in L2.
GROUP = 8


@dataclass(frozen=True)
class Plan:
    """A tile of rows x columns per block, clusters of down x across blocks, and the number of stages."""

    rows: int
    columns: int
    stages: int
    down: int
    across: int

    @property
    def peers(self) -> int:
        return self.down * self.across

    @property
    def consumers(self) -> int:
        return min(self.rows // 64, 2)


# The plans, and the share of the first plan's speed that each reaches if it leaves no SM idle.
PLANS = {
    Plan(128, 256, stages=4, down=2, across=1): 1.0,
    Plan(128, 192, stages=4, down=2, across=1): 0.9,
    Plan(128, 128, stages=6, down=2, across=1): 0.85,
    Plan(128, 128, stages=6, down=1, across=2): 0.85,
    Plan(64, 128, stages=8, down=2, across=1): 0.7,
    Plan(64, 64, stages=12, down=1, across=1): 0.5,
}
# For at most 64 rows, where one of two vertical neighbors would have nothing to compute.
FLAT = Plan(64, 128, stages=8, down=1, across=2)
# For at most 64 rows, where tiles of 128 columns would leave most SMs idle.
NARROW = Plan(64, 64, stages=12, down=1, across=2)


@cute.jit
def tile_of(plan: cutlass.Constexpr, number, here, down, across):
    """Return the row and column of this block's tile, in tiles, for cluster tile `number` of down x across.

    here: The row and column of this block in its cluster. Clusters go down GROUP rows before the next column starts.
    """
    first = number // (GROUP * across) * GROUP
    within = number % (GROUP * across)
    height = cutlass.min(down - first, GROUP)
    return (first + within % height) * plan.down + here[0], within // height * plan.across + here[1]


@cute.jit
def produce(plan: cutlass.Constexpr, tiles, steps, here, ring, copy_a, copy_b):
    """Fill the circular buffer from one warp. Each peer loads its part of a shared k-tile and multicasts it to all.

    tiles: the first number, the end, the increment, and down and across for tile_of. steps: steps of DEPTH along k.
    ring: the mbarriers `full` and `empty`, plan.stages of each. copy_a: the TMA copy, its source [.., row, step] and
    its destination [.., stage]; copy_b likewise, with columns.
    """
    (first, last, stride, down, across), (full, empty) = tiles, ring
    (load_a, from_a, to_a), (load_b, from_b, to_b) = copy_a, copy_b
    ranks = cute.make_layout((plan.down, plan.across, 1))
    to_row = cute.make_layout_image_mask(ranks, (*here, 0), mode=1) if cutlass.const_expr(plan.across > 1) else None
    to_column = cute.make_layout_image_mask(ranks, (*here, 0), mode=0) if cutlass.const_expr(plan.down > 1) else None
    count = cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        row, column = tile_of(plan, number, here, down, across)
        for step in cutlass.range(steps, unroll=1):
            stage, lap = count % plan.stages, count // plan.stages
            cute.arch.mbarrier_wait(empty + stage, lap % 2 ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * DEPTH * (plan.rows + plan.columns))
            cute.copy(load_a, from_a[None, row, step], to_a[None, stage], tma_bar_ptr=full + stage, mcast_mask=to_row)
            cute.copy(
                load_b, from_b[None, column, step], to_b[None, stage], tma_bar_ptr=full + stage, mcast_mask=to_column
            )
            count += 1


@cute.jit
def consume(plan: cutlass.Constexpr, tiles, steps, here, ring, mma, of_a, of_b, epilogue):
    """Multiply the stages as they arrive, with one k-tile in flight, and store this consumer's part of the tile.

    of_a, of_b: operands of mma in the ring [.., .., part of 16 along k, stage].
    """
    (first, last, stride, down, across), (full, empty) = tiles, ring
    thread, _, _ = cute.arch.thread_idx()
    worker, peer = cute.arch.make_warp_uniform(thread // WARPGROUP) - 1, thread % 32
    # One lane per peer tells the peers in this row or column of the cluster that they may load into the stage again.
    tells = peer < plan.peers and (peer % plan.down == here[0] or peer // plan.down == here[1])
    acc = cute.make_rmem_tensor(mma.partition_shape_C((plan.rows, plan.columns)), cutlass.Float32)
    count = cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        for step in cutlass.range(steps, unroll=1):
            stage, lap = count % plan.stages, count // plan.stages
            cute.arch.mbarrier_wait(full + stage, lap % 2)
            warpgroup.fence()
            mma.set(warpgroup.Field.ACCUMULATE, step > 0)
            for part in cutlass.range_constexpr(DEPTH // 16):
                cute.gemm(mma, acc, of_a[None, None, part, stage], of_b[None, None, part, stage], acc)
                mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            warpgroup.wait_group(1)
            if step > 0 and tells:
                cute.arch.mbarrier_arrive(empty + (count - 1) % plan.stages, peer)
            count += 1
        warpgroup.wait_group(0)
        if tells:
            cute.arch.mbarrier_arrive(empty + (count - 1) % plan.stages, peer)
        row, column = tile_of(plan, number, here, down, across)
        write(plan, worker, row, column, acc, epilogue)


@cute.jit
def write(plan: cutlass.Constexpr, worker, row, column, acc, epilogue):
    """Round a consumer's accumulators and store them in chunks. The last copies are still in flight when it returns.

    acc: the consumer's accumulators, one chunk after the other. epilogue: the TMA copy, the consumer's BUFFERS in
    shared memory [64, 64, buffer], out as the copy addresses it, and an mma that has the accumulators of one chunk.
    """
    store, buffers, out, mma = epilogue
    thread, _, _ = cute.arch.thread_idx()
    leads = cute.arch.make_warp_uniform(thread // 32) % 4 == 0
    atom = hopper.sm90_get_smem_store_op(LayoutEnum.ROW_MAJOR, store.value_type, cutlass.Float32)
    to_shared = cute.make_tiled_copy_C(atom, mma).get_slice(thread % WARPGROUP)
    from_shared, to_out = cpasync.tma_partition(
        store, 0, cute.make_layout(1), cute.group_modes(buffers, 0, 2), cute.group_modes(out, 0, 2)
    )
    sums = cute.make_rmem_tensor(mma.partition_shape_C(CHUNK), cutlass.Float32)
    rounded = cute.make_rmem_tensor_like(sums, store.value_type)
    wide = plan.columns // CHUNK[1]
    for chunk in cutlass.range_constexpr(cute.size(acc) // cute.size(sums)):
        for i in cutlass.range_constexpr(cute.size(sums)):
            sums[i] = acc[chunk * cute.size(sums) + i]
        rounded.store(sums.load().to(store.value_type))
        buffer = chunk % BUFFERS
        if leads:
            cute.arch.cp_async_bulk_wait_group(min(chunk, BUFFERS - 1), read=True)
        cute.arch.barrier(barrier_id=1 + worker, number_of_threads=WARPGROUP)
        cute.copy(atom, to_shared.retile(rounded), to_shared.partition_D(buffers)[None, None, None, buffer])
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=1 + worker, number_of_threads=WARPGROUP)
        if leads:
            down = row * (plan.rows // CHUNK[0]) + chunk // wide * plan.consumers + worker
            cute.copy(store, from_shared[None, buffer], to_out[None, down, column * wide + chunk % wide])
            cute.arch.cp_async_bulk_commit_group()


@cute.kernel
def multiply(plan: cutlass.Constexpr, mma, chunk_mma, layouts, a, b, out):
    """Run one block per SM, with one warpgroup that loads and one or two that multiply."""
    (of_a, of_b, of_out), (load_a, a), (load_b, b), (store, out) = layouts, a, b, out
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(thread // 32)
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    here = rank % plan.down, rank // plan.down

    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, plan.stages)
    empty = memory.allocate_array(cutlass.Int64, plan.stages)
    shared_a = memory.allocate_tensor(load_a.value_type, of_a.outer, 1024, of_a.inner)
    shared_b = memory.allocate_tensor(load_b.value_type, of_b.outer, 1024, of_b.inner)
    shared_out = memory.allocate_tensor(store.value_type, of_out.outer, 1024, of_out.inner)
    if warp == 0:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(plan.stages):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 4 * plan.consumers * (plan.down + plan.across - 1))
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()  # all peers must initialize their mbarriers before any block arrives
    cute.arch.cluster_wait()

    down = cute.ceil_div(out.shape[0], plan.rows * plan.down)
    across = cute.ceil_div(out.shape[1], plan.columns * plan.across)
    tiles = block // plan.peers, down * across, blocks // plan.peers, down, across
    steps = cute.ceil_div(a.shape[1], DEPTH)
    if warp < 4:
        if cutlass.const_expr(plan.consumers > 1):
            cute.arch.setmaxregister_decrease(40)
        if warp == 0:
            blocks_a = cute.local_tile(a, (plan.rows, DEPTH), (None, None))
            blocks_b = cute.local_tile(b, (plan.columns, DEPTH), (None, None))
            to_a, from_a = cpasync.tma_partition(
                load_a, here[1], cute.make_layout(plan.across),
                cute.group_modes(shared_a, 0, 2), cute.group_modes(blocks_a, 0, 2),
            )  # fmt: skip
            to_b, from_b = cpasync.tma_partition(
                load_b, here[0], cute.make_layout(plan.down),
                cute.group_modes(shared_b, 0, 2), cute.group_modes(blocks_b, 0, 2),
            )  # fmt: skip
            produce(plan, tiles, steps, here, (full, empty), (load_a, from_a, to_a), (load_b, from_b, to_b))
    else:
        if cutlass.const_expr(plan.consumers > 1):
            cute.arch.setmaxregister_increase(232)
        mine = mma.get_slice(thread - WARPGROUP)
        fragments_a = mma.make_fragment_A(mine.partition_A(shared_a))
        fragments_b = mma.make_fragment_B(mine.partition_B(shared_b))
        buffers = cute.local_tile(shared_out, (*CHUNK, BUFFERS), (0, 0, warp // 4 - 1))
        chunks = cute.local_tile(out, CHUNK, (None, None))
        epilogue = store, buffers, chunks, chunk_mma
        consume(plan, tiles, steps, here, (full, empty), mma, fragments_a, fragments_b, epilogue)
        if warp % 4 == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
    cute.arch.cluster_arrive()  # a peer may still arrive at the mbarriers of a block that has finished
    cute.arch.cluster_wait()


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, processors: cutlass.Int32, plan: cutlass.Constexpr) -> None:
    """out = a b^T for a [m, k], b [n, k] and out [m, n]."""
    dtype, acc_dtype = a.element_type, cutlass.Float32
    order_a, order_b, order_out = map(LayoutEnum.from_tensor, (a, b, out))
    majors = order_a.sm90_mma_major_mode(), order_b.sm90_mma_major_mode()
    block = plan.rows, plan.columns, DEPTH
    of_a = hopper.make_smem_layout_a(order_a, block, dtype, plan.stages)
    of_b = hopper.make_smem_layout_b(order_b, block, dtype, plan.stages)
    of_out = hopper.make_smem_layout_epi(dtype, order_out, CHUNK, BUFFERS * plan.consumers)
    clusters = cutlass.min(
        processors // plan.peers,
        cute.ceil_div(out.shape[0], plan.rows * plan.down) * cute.ceil_div(out.shape[1], plan.columns * plan.across),
    )
    multiply(
        plan,
        hopper.make_trivial_tiled_mma(dtype, dtype, *majors, acc_dtype, (plan.consumers, 1, 1), (64, plan.columns)),
        hopper.make_trivial_tiled_mma(dtype, dtype, *majors, acc_dtype, (1, 1, 1), CHUNK),
        (of_a, of_b, of_out),
        load_of(a, of_a, (plan.rows, DEPTH), plan.across),
        load_of(b, of_b, (plan.columns, DEPTH), plan.down),
        cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), out, cute.select(of_out, [0, 1]), CHUNK),
    ).launch(
        grid=[clusters * plan.peers, 1, 1],
        block=[WARPGROUP * (1 + plan.consumers), 1, 1],
        cluster=[plan.peers, 1, 1],
        min_blocks_per_mp=1,
    )


def load_of(matrix, layout, block, peers):
    """Return the TMA copy of a k-tile to a stage, and the matrix as this copy addresses it."""
    load = cpasync.CopyBulkTensorTileG2SMulticastOp() if peers > 1 else cpasync.CopyBulkTensorTileG2SOp()
    return cpasync.make_tiled_tma_atom(load, matrix, cute.select(layout, [0, 1]), block, num_multicast=peers)


@cute.kernel
def copy_row(src: cute.Tensor, dst: cute.Tensor):
    """Copy 2048 elements of a row in each block."""
    row, part, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    for i in cutlass.range_constexpr(8):
        column = (part * 8 + i) * 256 + thread
        if column < src.shape[1]:
            dst[row, column] = src[row, column]


@cute.jit
def copy_rows(src: cute.Tensor, dst: cute.Tensor):
    """Copy a matrix to one with a different row stride."""
    copy_row(src, dst).launch(grid=[src.shape[0], cute.ceil_div(src.shape[1], 2048), 1], block=[256, 1, 1])


def matmul(a: torch.Tensor, b: torch.Tensor, plan=None) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0 or k == 0:
        return out.zero_()
    target = out if n % 8 == 0 else pitched(out)
    processors = torch.cuda.get_device_properties(a.device if a.is_cuda else None).multi_processor_count
    lane.run(gemm, described(a), described(b.T), target, processors, plan or plan_for(processors, m, n))
    if target is not out:
        lane.run(copy_rows, target, out)
    return out


def plan_for(processors: int, m: int, n: int) -> Plan:
    """Return the plan with the lowest estimate: the number of waves times the time of a tile."""

    def time(plan: Plan) -> float:
        clusters = -(-m // (plan.rows * plan.down)) * -(-n // (plan.columns * plan.across))
        return -(-clusters // (processors // plan.peers)) * plan.rows * plan.columns / PLANS[plan]

    if m <= FLAT.rows:
        return NARROW if -(-n // NARROW.columns) <= processors // 2 else FLAT
    return min(PLANS, key=time)


def described(x: torch.Tensor) -> torch.Tensor:
    """Return x, or a copy whose rows or columns start at multiples of 16 bytes, as TMA requires."""
    down, across = x.stride()
    if across != 1:
        return described(x.T).T
    if down % 8 == 0:
        return x
    copy = pitched(x)
    lane.run(copy_rows, x, copy)
    return copy


def pitched(x: torch.Tensor) -> torch.Tensor:
    """Allocate memory for x in rows that start at multiples of 16 bytes."""
    return x.new_empty(x.shape[0], -(-x.shape[1] // 8) * 8)[:, : x.shape[1]]
