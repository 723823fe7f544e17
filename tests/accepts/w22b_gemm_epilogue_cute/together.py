"""Both consumers on one tile of 128 x 256, as CUTLASS calls cooperative: less to load, nothing behind the epilogue."""

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

WARPGROUP = 128
"""Threads of a warpgroup."""
CONSUMERS = 2
"""Warpgroups that multiply."""
DEPTH = 64
"""Columns of a and rows of b in a stage: 128 bytes, the width of the widest swizzle."""
CHUNK = (64, 64)
"""What a consumer finishes and stores at once."""
SLOTS = 3
"""Chunks of the residual that are in shared memory, or on their way, for each consumer."""
BUFFERS = 2
"""Chunks of the second output that a consumer has in shared memory."""
GROUP = 8
"""Rows of clusters that go down before the next column: those that run together share a and b in L2."""


ROWS, COLUMNS, STAGES, PEERS = 128, 256, 3, 2
CHUNKS = COLUMNS // CHUNK[1]
"""Of a tile, what each consumer finishes."""


@cute.jit
def gelu(x):
    half = 0.5 * x
    return half + half * cute.math.tanh(x * (0.7978845608028654 + 0.035677408136300125 * x * x), approx=True)


@cute.jit
def tile_of(number, rank, down, across):
    """Row and column of this block's tile, when its cluster computes cluster tile `number` of down x across."""
    first = number // (GROUP * across) * GROUP
    within = number % (GROUP * across)
    height = cutlass.min(down - first, GROUP)
    return (first + within % height) * PEERS + rank, within // height


@cute.jit
def produce(tiles, steps, rank, ring, copy_a, copy_b):
    """One warp fills the ring. Of b, each block of the cluster loads a part, and multicasts that to all."""
    (first, last, stride, down, across), (full, empty) = tiles, ring
    (load_a, from_a, to_a), (load_b, from_b, to_b) = copy_a, copy_b
    to_all = cutlass.Int16((1 << PEERS) - 1)
    count = cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        row, column = tile_of(number, rank, down, across)
        for step in cutlass.range(steps, unroll=1):
            stage, lap = count % STAGES, count // STAGES
            cute.arch.mbarrier_wait(empty + stage, lap % 2 ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * DEPTH * (ROWS + COLUMNS))
            cute.copy(load_a, from_a[None, row, step], to_a[None, stage], tma_bar_ptr=full + stage)
            cute.copy(
                load_b, from_b[None, column, step], to_b[None, stage], tma_bar_ptr=full + stage, mcast_mask=to_all
            )
            count += 1


@cute.jit
def fetch(tiles, rank, worker, slots, copies):
    """A warp for each consumer has the residual, the bias and the scales of a chunk brought to a slot."""
    (first, last, stride, down, across), (ready, free) = tiles, slots
    count = cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        row, column = tile_of(number, rank, down, across)
        for chunk in cutlass.range(CHUNKS, unroll=1):
            slot, lap = count % SLOTS, count // SLOTS
            at = row * CONSUMERS + worker, column * CHUNKS + chunk
            cute.arch.mbarrier_wait(free + slot, lap % 2 ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(
                    ready + slot, 2 * CHUNK[0] * CHUNK[1] + 2 * CHUNK[1] + 4 * CHUNK[0]
                )
            (load, source, target), (load_bias, bias, to_bias), (load_scale, scale, to_scale) = copies
            cute.copy(load, source[None, at[0], at[1]], target[None, slot], tma_bar_ptr=ready + slot)
            cute.copy(load_bias, bias[None, at[1]], to_bias[None, slot], tma_bar_ptr=ready + slot)
            cute.copy(load_scale, scale[None, at[0]], to_scale[None, slot], tma_bar_ptr=ready + slot)
            count += 1


@cute.jit
def consume(tiles, steps, rank, ring, mma, of_a, of_b, epilogue):
    """A consumer multiplies what arrives, with one step in flight, and finishes its part of the tile."""
    (first, last, stride, down, across), (full, empty) = tiles, ring
    thread, _, _ = cute.arch.thread_idx()
    worker, peer = cute.arch.make_warp_uniform(thread // WARPGROUP) - 1, thread % 32
    total = cute.make_rmem_tensor(mma.partition_shape_C((ROWS, COLUMNS)), cutlass.Float32)
    count, finished = cutlass.Int32(0), cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        for step in cutlass.range(steps, unroll=1):
            stage, lap = count % STAGES, count // STAGES
            cute.arch.mbarrier_wait(full + stage, lap % 2)
            warpgroup.fence()
            mma.set(warpgroup.Field.ACCUMULATE, step > 0)
            for part in cutlass.range_constexpr(DEPTH // 16):
                cute.gemm(mma, total, of_a[None, None, part, stage], of_b[None, None, part, stage], total)
                mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            warpgroup.wait_group(1)
            if step > 0 and peer < PEERS:
                cute.arch.mbarrier_arrive(empty + (count - 1) % STAGES, peer)
            count += 1
        warpgroup.wait_group(0)
        if peer < PEERS:
            cute.arch.mbarrier_arrive(empty + (count - 1) % STAGES, peer)
        row, column = tile_of(number, rank, down, across)
        finish(worker, row, column, finished, total, epilogue)
        finished += CHUNKS


@cute.jit
def finish(worker, row, column, count, total, epilogue):
    """Chunk by chunk: what the sums still need, then both outputs through swizzled shared memory."""
    (ready, free), of_columns, of_rows, (store_out, slots, out), (store_aux, buffers, aux), mma = epilogue
    thread, _, _ = cute.arch.thread_idx()
    leads = cute.arch.make_warp_uniform(thread // 32) % 4 == 0
    dtype = store_out.value_type
    mine = mma.get_slice(thread % WARPGROUP)
    load = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), dtype)
    store = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
    loading = cute.make_tiled_copy_C(load, mma).get_slice(thread % WARPGROUP)
    storing = cute.make_tiled_copy_C(store, mma).get_slice(thread % WARPGROUP)
    from_slots, to_out = cpasync.tma_partition(
        store_out, 0, cute.make_layout(1), cute.group_modes(slots, 0, 2), cute.group_modes(out, 0, 2)
    )
    from_buffers, to_aux = cpasync.tma_partition(
        store_aux, 0, cute.make_layout(1), cute.group_modes(buffers, 0, 2), cute.group_modes(aux, 0, 2)
    )
    before = cute.make_rmem_tensor(mma.partition_shape_C(CHUNK), dtype)
    made, more = cute.make_rmem_tensor_like(before), cute.make_rmem_tensor_like(before)
    for chunk in cutlass.range_constexpr(CHUNKS):
        slot, lap, buffer = count % SLOTS, count // SLOTS, chunk % BUFFERS
        cute.arch.mbarrier_wait(ready + slot, lap % 2)
        cute.copy(load, loading.partition_S(slots)[None, None, None, slot], loading.retile(more))
        bias = mine.partition_C(of_columns[None, None, slot])
        scale = mine.partition_C(of_rows[None, None, slot])
        for i in cutlass.range(cute.size(before), unroll_full=True):
            value = total[chunk * cute.size(before) + i] + bias[i].to(cutlass.Float32)
            before[i] = value.to(dtype)
            made[i] = (gelu(value) * scale[i] + more[i].to(cutlass.Float32)).to(dtype)
        if leads:
            cute.arch.cp_async_bulk_wait_group(min(chunk, BUFFERS - 1), read=True)
        cute.arch.barrier(barrier_id=1 + worker, number_of_threads=WARPGROUP)
        cute.copy(store, storing.retile(before), storing.partition_D(buffers)[None, None, None, buffer])
        cute.copy(store, storing.retile(made), storing.partition_D(slots)[None, None, None, slot])
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=1 + worker, number_of_threads=WARPGROUP)
        if leads:
            at = row * CONSUMERS + worker, column * CHUNKS + chunk
            cute.copy(store_aux, from_buffers[None, buffer], to_aux[None, at[0], at[1]])
            cute.copy(store_out, from_slots[None, slot], to_out[None, at[0], at[1]])
            cute.arch.cp_async_bulk_commit_group()
            if chunk > 0:
                cute.arch.cp_async_bulk_wait_group(1, read=True)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive(free + (count - 1) % SLOTS)
        count += 1
    if leads:
        cute.arch.cp_async_bulk_wait_group(0, read=True)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(free + (count - 1) % SLOTS)


@cute.kernel
def multiply(
    mma, chunk_mma, layouts, a, b, residual, bias, scale, out, aux, down: cutlass.Int32, across: cutlass.Int32
):
    """As many blocks as there are multiprocessors: one warpgroup whose warps load, and two that multiply."""
    of_a, of_b, of_slots, of_buffers = layouts
    (load_a, a), (load_b, b), (load_residual, residual), (load_bias, bias), (load_scale, scale) = (
        a,
        b,
        residual,
        bias,
        scale,
    )
    (store_out, out), (store_aux, aux) = out, aux
    dtype = load_a.value_type
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp_index = cute.arch.make_warp_uniform(thread // 32)
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())

    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, STAGES)
    empty = memory.allocate_array(cutlass.Int64, STAGES)
    ready = memory.allocate_array(cutlass.Int64, CONSUMERS * SLOTS)
    free = memory.allocate_array(cutlass.Int64, CONSUMERS * SLOTS)
    shared_bias = memory.allocate_tensor(dtype, cute.make_layout((CHUNK[1], CONSUMERS * SLOTS)), 128)
    shared_scale = memory.allocate_tensor(cutlass.Float32, cute.make_layout((CHUNK[0], CONSUMERS * SLOTS)), 128)
    shared_a = memory.allocate_tensor(dtype, of_a.outer, 1024, of_a.inner)
    shared_b = memory.allocate_tensor(dtype, of_b.outer, 1024, of_b.inner)
    shared_slots = memory.allocate_tensor(dtype, of_slots.outer, 1024, of_slots.inner)
    shared_buffers = memory.allocate_tensor(dtype, of_buffers.outer, 1024, of_buffers.inner)
    if warp_index == 0:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 4 * CONSUMERS * PEERS)
            for slot in cutlass.range_constexpr(CONSUMERS * SLOTS):
                cute.arch.mbarrier_init(ready + slot, 1)
                cute.arch.mbarrier_init(free + slot, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()  # the mbarriers of all peers have to be there before anyone arrives at them
    cute.arch.cluster_wait()

    tiles = block // PEERS, down * across, blocks // PEERS, down, across
    steps = cute.ceil_div(a.shape[1], DEPTH)
    alone = cute.make_layout(1)
    if warp_index < 4:
        cute.arch.setmaxregister_decrease(40)
        if warp_index == 0:
            to_a, from_a = cpasync.tma_partition(
                load_a, 0, alone, cute.group_modes(shared_a, 0, 2),
                cute.group_modes(cute.local_tile(a, (ROWS, DEPTH), (None, None)), 0, 2),
            )  # fmt: skip
            to_b, from_b = cpasync.tma_partition(
                load_b, rank, cute.make_layout(PEERS), cute.group_modes(shared_b, 0, 2),
                cute.group_modes(cute.local_tile(b, (COLUMNS, DEPTH), (None, None)), 0, 2),
            )  # fmt: skip
            produce(tiles, steps, rank, (full, empty), (load_a, from_a, to_a), (load_b, from_b, to_b))
        elif warp_index <= CONSUMERS:
            worker = warp_index - 1
            slots = cute.local_tile(shared_slots, (*CHUNK, SLOTS), (0, 0, worker))
            to_slots, from_residual = cpasync.tma_partition(
                load_residual, 0, alone, cute.group_modes(slots, 0, 2),
                cute.group_modes(cute.local_tile(residual, CHUNK, (None, None)), 0, 2),
            )  # fmt: skip
            to_bias, from_bias = cpasync.tma_partition(
                load_bias, 0, alone, cute.local_tile(shared_bias, (CHUNK[1], SLOTS), (0, worker)),
                cute.local_tile(bias, (CHUNK[1],), (None,)),
            )  # fmt: skip
            to_scale, from_scale = cpasync.tma_partition(
                load_scale, 0, alone, cute.local_tile(shared_scale, (CHUNK[0], SLOTS), (0, worker)),
                cute.local_tile(scale, (CHUNK[0],), (None,)),
            )  # fmt: skip
            copies = (
                (load_residual, from_residual, to_slots),
                (load_bias, from_bias, to_bias),
                (load_scale, from_scale, to_scale),
            )
            fetch(tiles, rank, worker, (ready + worker * SLOTS, free + worker * SLOTS), copies)
    else:
        cute.arch.setmaxregister_increase(232)
        worker = warp_index // 4 - 1
        mine = mma.get_slice((thread - WARPGROUP) % (WARPGROUP * CONSUMERS))
        fragments_a = mma.make_fragment_A(mine.partition_A(shared_a))
        fragments_b = mma.make_fragment_B(mine.partition_B(shared_b))
        # A layout of stride 0 gives each row of a chunk the same bias, and each column the same scale.
        of_columns = cute.make_tensor(
            cute.local_tile(shared_bias, (CHUNK[1], SLOTS), (0, worker)).iterator,
            cute.make_layout((*CHUNK, SLOTS), stride=(0, 1, CHUNK[1])),
        )
        of_rows = cute.make_tensor(
            cute.local_tile(shared_scale, (CHUNK[0], SLOTS), (0, worker)).iterator,
            cute.make_layout((*CHUNK, SLOTS), stride=(1, 0, CHUNK[0])),
        )
        epilogue = (
            (ready + worker * SLOTS, free + worker * SLOTS),
            of_columns,
            of_rows,
            (
                store_out,
                cute.local_tile(shared_slots, (*CHUNK, SLOTS), (0, 0, worker)),
                cute.local_tile(out, CHUNK, (None, None)),
            ),
            (
                store_aux,
                cute.local_tile(shared_buffers, (*CHUNK, BUFFERS), (0, 0, worker)),
                cute.local_tile(aux, CHUNK, (None, None)),
            ),
            chunk_mma,
        )
        consume(tiles, steps, rank, (full, empty), mma, fragments_a, fragments_b, epilogue)
    cute.arch.cluster_arrive()  # a peer may still arrive at the mbarriers of a block that has nothing left to do
    cute.arch.cluster_wait()


@cute.jit
def product(
    a: cute.Tensor,
    b: cute.Tensor,
    bias: cute.Tensor,
    scale: cute.Tensor,
    residual: cute.Tensor,
    out: cute.Tensor,
    aux: cute.Tensor,
    processors: cutlass.Int32,
) -> None:
    """a [m, k], b [n, k]"""
    dtype, rows = a.element_type, LayoutEnum.ROW_MAJOR
    order_a, order_b = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    majors = order_a.sm90_mma_major_mode(), order_b.sm90_mma_major_mode()
    block = ROWS, COLUMNS, DEPTH
    of_a = hopper.make_smem_layout_a(order_a, block, dtype, STAGES)
    of_b = hopper.make_smem_layout_b(order_b, block, dtype, STAGES)
    of_slots = hopper.make_smem_layout_epi(dtype, rows, CHUNK, CONSUMERS * SLOTS)
    of_buffers = hopper.make_smem_layout_epi(dtype, rows, CHUNK, CONSUMERS * BUFFERS)
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    to_all = cpasync.CopyBulkTensorTileG2SMulticastOp()
    chunk = cute.select(of_slots, [0, 1])
    down, across = cute.ceil_div(out.shape[0], ROWS * PEERS), cute.ceil_div(out.shape[1], COLUMNS)
    multiply(
        hopper.make_trivial_tiled_mma(dtype, dtype, *majors, cutlass.Float32, (CONSUMERS, 1, 1), (64, COLUMNS)),
        hopper.make_trivial_tiled_mma(dtype, dtype, *majors, cutlass.Float32, (1, 1, 1), CHUNK),
        (of_a, of_b, of_slots, of_buffers),
        cpasync.make_tiled_tma_atom(load, a, cute.select(of_a, [0, 1]), (ROWS, DEPTH)),
        cpasync.make_tiled_tma_atom(to_all, b, cute.select(of_b, [0, 1]), (COLUMNS, DEPTH), num_multicast=PEERS),
        cpasync.make_tiled_tma_atom(load, residual, chunk, CHUNK),
        cpasync.make_tiled_tma_atom(load, bias, cute.make_layout(CHUNK[1]), (CHUNK[1],)),
        cpasync.make_tiled_tma_atom(load, scale, cute.make_layout(CHUNK[0]), (CHUNK[0],)),
        cpasync.make_tiled_tma_atom(store, out, chunk, CHUNK),
        cpasync.make_tiled_tma_atom(store, aux, chunk, CHUNK),
        down,
        across,
    ).launch(
        grid=[cutlass.min(processors // PEERS, down * across) * PEERS, 1, 1],
        block=[WARPGROUP * (1 + CONSUMERS), 1, 1],
        cluster=[PEERS, 1, 1],
        min_blocks_per_mp=1,
    )


def gemm_epilogue(a, b, bias, scale, residual):
    out, aux = torch.empty_like(residual), torch.empty_like(residual)
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    lane.run(product, a, b.T, bias, scale, residual, out, aux, processors)
    return out, aux
