"""GEMM with an epilogue and two outputs: one consumer multiplies during the epilogue of the other.

gemm_epilogue(a, b, bias, scale, residual) takes contiguous bfloat16 matrices a (m, k), b (k, n) and residual (m, n), a
bfloat16 vector bias (n) and a float32 vector scale (m), all of which start at multiples of 16 bytes. n and k are
multiples of 8, m is at least 1, and each tensor has fewer than 2**31 elements. It returns two new tensors (m, n) in
bfloat16, out and aux:

    aux[i, j] = bias[j] + sum over p of a[i, p] * b[p, j]
    out[i, j] = scale[i] * gelu(aux[i, j]) + residual[i, j]         with aux before it is rounded
    gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

Training keeps aux for the backward pass. Accumulators and epilogue are float32, and each output is rounded once.

Start from your persistent GEMM. The grader checks the values, the single launch, the use of tensor cores, and the
bytes. The PTX machine checks mbarriers, fences and wgmmas in flight. On a GPU, the grader compares the time with
cuBLAS, which adds the bias, followed by one kernel for the rest.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. In total, global
memory accesses may move at most 5 times the size of the inputs and outputs. A call may launch at most 1 kernel. The
multiply-adds must run on tensor cores.

Bytes: 6 m n for the residual, out and aux, 403 MB at m = n = 8192, 0.096 ms at 4.2 TB/s; the second kernel of the
baseline reads aux again. Operations: 2 m n k, 275 billion at k = 2048, 0.37 ms in cuBLAS. The kernel is bound by the
tensor cores, as long as they do not wait for an epilogue. So each consumer has its own tiles, and finishes one while
the other multiplies (CUTLASS's ping-pong schedule). A 128 x 192 accumulator takes 192 of a thread's 240 registers.
Besides four stages, shared memory holds four chunks of the residual and two of aux for each consumer. Measured on an
H200 at 8192 x 8192 x 2048, in microseconds, the two other tiles and PyTorch's operators in earlier runs:

    this kernel                              375    cuBLAS with the bias alone                         358
    tiles of 128 x 128                       427    cuBLAS, then the kernel that torch.compile makes   453
    both consumers on one of 128 x 256       444    cuBLAS, then the kernel of week 14: the baseline   469
                                                    cuBLAS, then PyTorch's operators                  1047

Speedup over the baseline: 1.25 at that size, 1.06 to 1.09 at 8192 cubed, and 1.22 to 1.26 at 8192 x 16,384 x 4096. With
few tiles it is lower: 1.02 at 4096 cubed, 704 tiles for 132 blocks, and 0.87 at 2048.
Speedup over cuBLAS and torch.compile's kernel: 1.33 at k = 1024, 1.21 at 2048, 1.04 at 8192.
"""

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

# Threads of a warpgroup.
WARPGROUP = 128
# Warpgroups that multiply. Each computes every other tile of the block.
CONSUMERS = 2
# Rows, columns, and the depth of a stage: 128 bytes, the width of the widest swizzle.
TILE = (128, 192, 64)
STAGES = 4
# Blocks of a cluster. Their tiles are vertical neighbors, and each block loads a part of their tile of b.
PEERS = 2
# The chunk that a consumer finishes and stores at once. With 64 columns, a thread's 240 registers would spill.
CHUNK = (64, 32)
# Distance between slots of the bias, in values, because TMA copies to multiples of 128 bytes.
PITCH = 64
CHUNKS = TILE[0] // CHUNK[0], TILE[1] // CHUNK[1]
# Chunks of the residual that each consumer has in shared memory or in flight.
SLOTS = 4
# Chunks of aux that each consumer has in shared memory: one is written while the other is copied.
BUFFERS = 2
# Height of a group of clusters, in clusters. Clusters that run together share a and b in L2.
GROUP = 8


@cute.jit
def gelu(x):
    """Return gelu(x) by the formula above."""
    half = 0.5 * x
    return half + half * cute.math.tanh(x * (0.7978845608028654 + 0.035677408136300125 * x * x), approx=True)


@cute.jit
def tile_of(number, rank, down, across):
    """Return the row and column of this block's tile for cluster tile `number` of down x across."""
    first = number // (GROUP * across) * GROUP
    within = number % (GROUP * across)
    height = cutlass.min(down - first, GROUP)
    return (first + within % height) * PEERS + rank, within // height


@cute.jit
def produce(tiles, steps, rank, ring, copy_a, copy_b):
    """Fill the circular buffer from one warp. Each block loads its part of b and multicasts it to the cluster."""
    (first, last, stride, down, across), (full, empty) = tiles, ring
    (load_a, from_a, to_a), (load_b, from_b, to_b) = copy_a, copy_b
    everyone = cutlass.Int16((1 << PEERS) - 1)
    count = cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        row, column = tile_of(number, rank, down, across)
        for step in cutlass.range(steps, unroll=1):
            stage, lap = count % STAGES, count // STAGES
            cute.arch.mbarrier_wait(empty + stage, lap % 2 ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * TILE[2] * (TILE[0] + TILE[1]))
            cute.copy(load_a, from_a[None, row, step], to_a[None, stage], tma_bar_ptr=full + stage)
            cute.copy(
                load_b, from_b[None, column, step], to_b[None, stage], tma_bar_ptr=full + stage, mcast_mask=everyone
            )
            count += 1


@cute.jit
def fetch(tiles, rank, slots, copy_residual, copy_bias, copy_scale):
    """Load residual, bias and scales of the next chunks, on one mbarrier, from one warp per consumer."""
    (first, last, stride, down, across), (ready, free) = tiles, slots
    (load, residual, to_residual) = copy_residual
    (load_bias, bias, to_bias), (load_scale, scale, to_scale) = copy_bias, copy_scale
    count = cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        row, column = tile_of(number, rank, down, across)
        for chunk in cutlass.range(CHUNKS[0] * CHUNKS[1], unroll=1):
            slot, lap = count % SLOTS, count // SLOTS
            at = row * CHUNKS[0] + chunk // CHUNKS[1], column * CHUNKS[1] + chunk % CHUNKS[1]
            cute.arch.mbarrier_wait(free + slot, lap % 2 ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(
                    ready + slot, 2 * CHUNK[0] * CHUNK[1] + 2 * CHUNK[1] + 4 * CHUNK[0]
                )
            cute.copy(load, residual[None, at[0], at[1]], to_residual[None, slot], tma_bar_ptr=ready + slot)
            cute.copy(load_bias, bias[None, at[1]], to_bias[None, slot], tma_bar_ptr=ready + slot)
            cute.copy(load_scale, scale[None, at[0]], to_scale[None, slot], tma_bar_ptr=ready + slot)
            count += 1


@cute.jit
def consume(tiles, steps, rank, ring, order, mma, of_a, of_b, epilogue):
    """Multiply a tile with one k-tile in flight, and finish it while the other consumer multiplies the next."""
    (first, last, stride, down, across), (full, empty) = tiles, ring
    thread, _, _ = cute.arch.thread_idx()
    worker, peer = cute.arch.make_warp_uniform(thread // WARPGROUP) - 1, thread % 32
    acc = cute.make_rmem_tensor(mma.partition_shape_C(TILE[:2]), cutlass.Float32)
    count, turn = worker * steps, cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        # A parity distinguishes two laps of the ring but not three, so a consumer may wait for a stage only when the
        # other has seen all of its own. The consumer that is ahead passes the ring on.
        cute.arch.mbarrier_wait(order + worker, (turn + worker + 1) % 2)
        for step in cutlass.range(steps, unroll=1):
            stage, lap = count % STAGES, count // STAGES
            cute.arch.mbarrier_wait(full + stage, lap % 2)
            warpgroup.fence()
            mma.set(warpgroup.Field.ACCUMULATE, step > 0)
            for part in cutlass.range_constexpr(TILE[2] // 16):
                cute.gemm(mma, acc, of_a[None, None, part, stage], of_b[None, None, part, stage], acc)
                mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            warpgroup.wait_group(1)
            if step > 0 and peer < PEERS:
                cute.arch.mbarrier_arrive(empty + (count - 1) % STAGES, peer)
            count += 1
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(order + 1 - worker)
        warpgroup.wait_group(0)
        if peer < PEERS:
            cute.arch.mbarrier_arrive(empty + (count - 1) % STAGES, peer)
        row, column = tile_of(number, rank, down, across)
        finish(worker, row, column, turn, acc, epilogue)
        count += steps  # of the other consumer
        turn += 1


@cute.jit
def finish(worker, row, column, turn, acc, epilogue):
    """Finish the accumulators in chunks in registers, and store both outputs through swizzled shared memory.

    There, out overwrites the residual. turn: The number of tiles that this consumer has finished. A tile uses every
    slot equally often, so the slot of a chunk is known at compile time.
    """
    (ready, free), bias, scale, (store_out, slots, out), (store_aux, buffers, aux), mma = epilogue
    thread, _, _ = cute.arch.thread_idx()
    thread, leads, dtype = thread % WARPGROUP, cute.arch.make_warp_uniform(thread // 32) % 4 == 0, store_out.value_type
    load_atom = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), dtype)
    store_atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
    loading = cute.make_tiled_copy_C(load_atom, mma).get_slice(thread)
    storing = cute.make_tiled_copy_C(store_atom, mma).get_slice(thread)
    alone = cute.make_layout(1)
    from_slots, to_out = cpasync.tma_partition(
        store_out, 0, alone, cute.group_modes(slots, 0, 2), cute.group_modes(out, 0, 2)
    )
    from_buffers, to_aux = cpasync.tma_partition(
        store_aux, 0, alone, cute.group_modes(buffers, 0, 2), cute.group_modes(aux, 0, 2)
    )
    of_columns, of_rows = mma.get_slice(thread).partition_C(bias), mma.get_slice(thread).partition_C(scale)
    more = cute.make_rmem_tensor(mma.partition_shape_C(CHUNK), dtype)
    rounded_out, rounded_aux = cute.make_rmem_tensor_like(more), cute.make_rmem_tensor_like(more)
    from_slot, to_slot = loading.partition_S(slots), storing.partition_D(slots)
    to_buffer = storing.partition_D(buffers)
    for chunk in cutlass.range_constexpr(CHUNKS[0] * CHUNKS[1]):
        slot, buffer = chunk % SLOTS, chunk % BUFFERS
        lap = turn * (CHUNKS[0] * CHUNKS[1] // SLOTS) + chunk // SLOTS
        cute.arch.mbarrier_wait(ready + slot, lap % 2)
        for part in cutlass.range_constexpr(CHUNK[1] // 16):  # columns of one ldmatrix, so that few values are live
            cute.copy(
                load_atom, from_slot[(None, part), None, None, slot], loading.retile(more)[(None, part), None, None]
            )
            for i in cutlass.range_constexpr(8 * part, 8 * part + 8):
                value = acc[chunk * cute.size(more) + i] + of_columns[None, None, None, slot][i].to(cutlass.Float32)
                rounded_aux[i] = value.to(dtype)
                value = gelu(value) * of_rows[None, None, None, slot][i] + more[i].to(cutlass.Float32)
                rounded_out[i] = value.to(dtype)
            cute.copy(
                store_atom,
                storing.retile(rounded_aux)[(None, part), None, None],
                to_buffer[(None, part), None, None, buffer],
            )
            cute.copy(
                store_atom,
                storing.retile(rounded_out)[(None, part), None, None],
                to_slot[(None, part), None, None, slot],
            )
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=1 + worker, number_of_threads=WARPGROUP)
        if leads:
            at = row * CHUNKS[0] + chunk // CHUNKS[1], column * CHUNKS[1] + chunk % CHUNKS[1]
            cute.copy(store_aux, from_buffers[None, buffer], to_aux[None, at[0], at[1]])
            cute.copy(store_out, from_slots[None, slot], to_out[None, at[0], at[1]])
            cute.arch.cp_async_bulk_commit_group()
            # Before the next chunk, the previous chunk's copies must have read their slot and their buffer.
            last = chunk == CHUNKS[0] * CHUNKS[1] - 1
            cute.arch.cp_async_bulk_wait_group(0 if last else BUFFERS - 1, read=True)
            with cute.arch.elect_one():
                if cutlass.const_expr(chunk > 0):
                    cute.arch.mbarrier_arrive(free + (chunk - 1) % SLOTS)
                if cutlass.const_expr(last):
                    cute.arch.mbarrier_arrive(free + slot)
        cute.arch.barrier(barrier_id=1 + worker, number_of_threads=WARPGROUP)


@cute.kernel
def multiply(mma, chunk_mma, layouts, a, b, residual, bias, scale, out, aux):
    """Run one block per SM: a warpgroup of which three warps load, and two warpgroups that multiply."""
    of_a, of_b, of_slots, of_buffers = layouts
    (load_a, a), (load_b, b), (load_residual, residual), (load_bias, bias), (load_scale, scale) = (
        *(a, b, residual, bias, scale),
    )
    (store_out, out), (store_aux, aux) = out, aux
    dtype = load_a.value_type
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp_number = cute.arch.make_warp_uniform(thread // 32)
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())

    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, STAGES)
    empty = memory.allocate_array(cutlass.Int64, STAGES)
    ready = memory.allocate_array(cutlass.Int64, CONSUMERS * SLOTS)
    free = memory.allocate_array(cutlass.Int64, CONSUMERS * SLOTS)
    order = memory.allocate_array(cutlass.Int64, CONSUMERS)
    shared_bias = memory.allocate_tensor(dtype, cute.make_layout((CHUNK[1], CONSUMERS * SLOTS), stride=(1, PITCH)), 128)
    shared_scale = memory.allocate_tensor(cutlass.Float32, cute.make_layout((CHUNK[0], CONSUMERS * SLOTS)), 128)
    shared_a = memory.allocate_tensor(dtype, of_a.outer, 1024, of_a.inner)
    shared_b = memory.allocate_tensor(dtype, of_b.outer, 1024, of_b.inner)
    shared_slots = memory.allocate_tensor(dtype, of_slots.outer, 1024, of_slots.inner)
    shared_buffers = memory.allocate_tensor(dtype, of_buffers.outer, 1024, of_buffers.inner)
    if warp_number == 0:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 4 * PEERS)
            for slot in cutlass.range_constexpr(CONSUMERS * SLOTS):
                cute.arch.mbarrier_init(ready + slot, 1)
                cute.arch.mbarrier_init(free + slot, 1)
            for worker in cutlass.range_constexpr(CONSUMERS):
                cute.arch.mbarrier_init(order + worker, 4)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()  # all peers must initialize their mbarriers before any block arrives
    cute.arch.cluster_wait()

    down, across = cute.ceil_div(out.shape[0], TILE[0] * PEERS), cute.ceil_div(out.shape[1], TILE[1])
    first, last, stride = block // PEERS, down * across, blocks // PEERS
    steps = cute.ceil_div(a.shape[1], TILE[2])
    alone = cute.make_layout(1)
    if warp_number < 4:
        cute.arch.setmaxregister_decrease(24)
        if warp_number == 0:
            to_a, from_a = cpasync.tma_partition(
                *(load_a, 0, alone, cute.group_modes(shared_a, 0, 2)),
                cute.group_modes(cute.local_tile(a, (TILE[0], TILE[2]), (None, None)), 0, 2),
            )
            to_b, from_b = cpasync.tma_partition(
                *(load_b, rank, cute.make_layout(PEERS), cute.group_modes(shared_b, 0, 2)),
                cute.group_modes(cute.local_tile(b, (TILE[1], TILE[2]), (None, None)), 0, 2),
            )
            tiles = first, last, stride, down, across
            produce(tiles, steps, rank, (full, empty), (load_a, from_a, to_a), (load_b, from_b, to_b))
        elif warp_number <= CONSUMERS:
            worker = warp_number - 1
            to_slots, from_residual = cpasync.tma_partition(
                *(load_residual, 0, alone),
                cute.group_modes(cute.local_tile(shared_slots, (*CHUNK, SLOTS), (0, 0, worker)), 0, 2),
                cute.group_modes(cute.local_tile(residual, CHUNK, (None, None)), 0, 2),
            )
            to_bias, from_bias = cpasync.tma_partition(
                *(load_bias, 0, alone, cute.local_tile(shared_bias, (CHUNK[1], SLOTS), (0, worker))),
                cute.local_tile(bias, CHUNK[1:], (None,)),
            )
            to_scale, from_scale = cpasync.tma_partition(
                *(load_scale, 0, alone, cute.local_tile(shared_scale, (CHUNK[0], SLOTS), (0, worker))),
                cute.local_tile(scale, CHUNK[:1], (None,)),
            )
            tiles = first + worker * stride, last, CONSUMERS * stride, down, across
            slots = ready + worker * SLOTS, free + worker * SLOTS
            copies = (load_residual, from_residual, to_slots), (load_bias, from_bias, to_bias)
            fetch(tiles, rank, slots, *copies, (load_scale, from_scale, to_scale))
    else:
        cute.arch.setmaxregister_increase(240)
        worker = warp_number // 4 - 1
        mine = mma.get_slice(thread % WARPGROUP)
        fragments_a = mma.make_fragment_A(mine.partition_A(shared_a))
        fragments_b = mma.make_fragment_B(mine.partition_B(shared_b))
        # With stride 0, every row of a chunk has the same bias, and every column the same scale.
        of_columns = cute.make_layout((*CHUNK, SLOTS), stride=(0, 1, PITCH))
        of_rows = cute.make_layout((*CHUNK, SLOTS), stride=(1, 0, CHUNK[0]))
        slots = cute.local_tile(shared_slots, (*CHUNK, SLOTS), (0, 0, worker))
        buffers = cute.local_tile(shared_buffers, (*CHUNK, BUFFERS), (0, 0, worker))
        epilogue = (
            (ready + worker * SLOTS, free + worker * SLOTS),
            cute.make_tensor(shared_bias[None, worker * SLOTS].iterator, of_columns),
            cute.make_tensor(shared_scale[None, worker * SLOTS].iterator, of_rows),
            (store_out, slots, cute.local_tile(out, CHUNK, (None, None))),
            (store_aux, buffers, cute.local_tile(aux, CHUNK, (None, None))),
            chunk_mma,
        )
        tiles = first + worker * stride, last, CONSUMERS * stride, down, across
        consume(tiles, steps, rank, (full, empty), order, mma, fragments_a, fragments_b, epilogue)
    cute.arch.cluster_arrive()  # a peer may still arrive at the mbarriers of a block that has finished
    cute.arch.cluster_wait()


@cute.jit
def gemm(
    a: cute.Tensor,
    b: cute.Tensor,
    bias: cute.Tensor,
    scale: cute.Tensor,
    residual: cute.Tensor,
    out: cute.Tensor,
    aux: cute.Tensor,
    processors: cutlass.Int32,
) -> None:
    """Launch the kernel for a [m, k], b [n, k], bias [n], scale [m], and residual, out and aux [m, n]."""
    dtype, order_a, order_b = a.element_type, LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    types = dtype, dtype, order_a.sm90_mma_major_mode(), order_b.sm90_mma_major_mode(), cutlass.Float32
    of_a = hopper.make_smem_layout_a(order_a, TILE, dtype, STAGES)
    of_b = hopper.make_smem_layout_b(order_b, TILE, dtype, STAGES)
    of_slots = hopper.make_smem_layout_epi(dtype, LayoutEnum.ROW_MAJOR, CHUNK, CONSUMERS * SLOTS)
    of_buffers = hopper.make_smem_layout_epi(dtype, LayoutEnum.ROW_MAJOR, CHUNK, CONSUMERS * BUFFERS)
    load, to_all = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileG2SMulticastOp()
    store, of_chunk = cpasync.CopyBulkTensorTileS2GOp(), cute.select(of_slots, [0, 1])
    down, across = cute.ceil_div(out.shape[0], TILE[0] * PEERS), cute.ceil_div(out.shape[1], TILE[1])
    multiply(
        hopper.make_trivial_tiled_mma(*types, (1, 1, 1), (64, TILE[1])),
        hopper.make_trivial_tiled_mma(*types, (1, 1, 1), CHUNK),
        (of_a, of_b, of_slots, of_buffers),
        cpasync.make_tiled_tma_atom(load, a, cute.select(of_a, [0, 1]), (TILE[0], TILE[2])),
        cpasync.make_tiled_tma_atom(to_all, b, cute.select(of_b, [0, 1]), TILE[1:], num_multicast=PEERS),
        cpasync.make_tiled_tma_atom(load, residual, of_chunk, CHUNK),
        cpasync.make_tiled_tma_atom(load, bias, cute.make_layout(CHUNK[1]), CHUNK[1:]),
        cpasync.make_tiled_tma_atom(load, scale, cute.make_layout(CHUNK[0]), CHUNK[:1]),
        cpasync.make_tiled_tma_atom(store, out, of_chunk, CHUNK),
        cpasync.make_tiled_tma_atom(store, aux, of_chunk, CHUNK),
    ).launch(
        grid=[cutlass.min(processors // PEERS, down * across) * PEERS, 1, 1],
        block=[WARPGROUP * (1 + CONSUMERS), 1, 1],
        cluster=[PEERS, 1, 1],
        min_blocks_per_mp=1,
    )


def gemm_epilogue(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    out, aux = torch.empty_like(residual), torch.empty_like(residual)
    if out.numel() == 0:
        return out, aux
    if a.shape[1] == 0:  # a sum of no terms is zero
        a, b = a.new_zeros(len(out), 8), b.new_zeros(8, len(bias))
    processors = torch.cuda.get_device_properties(a.device if a.is_cuda else None).multi_processor_count
    lane.run(gemm, a, b.T, bias, scale, residual, out, aux, processors)
    return out, aux
