"""Attention on Hopper: two GEMMs and a softmax in one pipeline of a producer and its consumers.

flash_attention(q, k, v, causal) takes contiguous bfloat16 tensors that start at a multiple of 16 bytes: q of shape
(batch, heads, tokens, head), k and v of shape (batch, kv_heads, tokens, head), where head is 64 or 128 and heads is a
multiple of kv_heads. Query head h reads key head h // (heads // kv_heads). causal is a bool. If it is true, query i
sees the keys 0 to i, otherwise all keys. The function returns two new tensors. out has the shape and dtype of q, and is
softmax(q @ k^T / sqrt(head)) @ v for each head. lse is float32 of shape (batch, heads, tokens), and is the natural
logarithm of each row's sum of exp(scores). Scores may be as large as 1000 and as low as -1000. There may be any number
of tokens, heads and batches, and tensors have fewer than 2**31 elements.

A producer warp uses TMA to load a block's queries once, and then tiles of keys and values in turn into a circular
buffer. Consumers are warpgroups with 64 queries each. The scores of a tile are the accumulators of one wgmma. Rounded
to bfloat16, the weights are the operand of the next wgmma, in the same registers.

Start with a producer and two consumers that wait for each wgmma. Then overlap the softmax of a tile with the second
GEMM of the tile before it, and let the consumers take turns at the tensor cores. The grader checks the values, the
bytes, the memory that is allocated in addition to inputs and outputs, and every wait, and on a GPU compares the time
with the formula written as PyTorch operators.

The grader enforces these limits on the largest case (batch=1 heads=4 kv_heads=2 tokens=320 head=128 causal=False
dtype=bfloat16); smaller cases get some slack for partial tiles. Each load or store may touch at most 2 times the
sectors that its bytes require. In total, global memory accesses may move at most 5 times the size of the inputs and
outputs. Any workspace may be at most 0.1 times the size of the inputs and outputs. The multiply-adds must run on tensor
cores.

Bound: 4 operations per score and column, 0.275e12 for 4 x 16 x 4096 x 128 with a causal mask, which take 0.35 ms at the
790e12 per second that large GEMMs reach on an H200. An SM does 4096 of these operations and 16 exponentials per cycle.
For a tile of 64 queries and 128 keys with heads of 128, its tensor cores take 1024 cycles, and the exponentials 512. So
neither may wait for the other, as in FlashAttention-3 (Shah and others, 2024).

The main loop is the same as in the answer. Three things are new:

- A dynamic persistent scheduler for causal heads. There is one block per SM. When the producer starts a tile of
  queries, it draws the next one from a counter in global memory, and passes its number to the consumers through shared
  memory with a pair of mbarriers. So the loads of a tile overlap with the end of the tile before it, and the SMs finish
  at about the same time. The longest tiles come first, in sections of heads whose keys and values fit in L2.
- The tiles of keys are processed from the last to the first. Only the tiles on the diagonal need a mask, and they come
  first.
- Accumulators are rescaled only if a weight would otherwise exceed 2**8, as in FlashAttention-4's kernels for
  Blackwell, not whenever the largest score of a row rises. The final division cancels any factor that all weights of a
  row share.

Measured on an H200 in one run, in TFLOP/s, with the answer, FlashAttention-4's kernel for Hopper, and cuDNN:

    head 128                   this kernel   answer    FA-4   cuDNN
    causal, 1024 tokens                464      399     397     424
    causal, 4096                       626      594     614     572
    causal, 16,384                     654      614     658     572
    causal, 4096, GQA 32/8             634      572     605
    all keys, 4096                     682      648     691     648
    all keys, 16,384                   648      614     695     622

In another run this kernel reached 647 for 4096 tokens, causal, and FlashAttention-4 626. Three changes did not help:
tiles of 144, 160 and 176 keys without a mask (93% to 97% of the speed), rescaling the accumulators during the next
GEMM of queries and keys (99% to 101%, but 102% with heads of 64 and three consumers), and no ping-pong (99% to 101%).
"""

import math
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

BF16, F32 = cutlass.BFloat16, cutlass.Float32
# Queries of one consumer, which are the rows of a wgmma.
QUERIES = 64

# A section has as many heads as fit in this many bytes, a fraction of L2, but at least SECTION_HEADS.
SECTION_BYTES, SECTION_HEADS = 16 << 20, 8

# Up to this many tokens, causal heads of 64 use smaller blocks.
SHORT = 1024

# Registers per thread of the producer's warpgroup and of a consumer, by the number of consumers.
REGISTERS = {1: None, 2: (24, 240), 3: (32, 160)}

# A row's largest score may rise by this much, in powers of two, before its accumulators are rescaled.
RISE = 8.0

# Named barriers of the first consumer. The others use the following numbers. Barrier 0 is sync_threads.
TURN, WRITE = 1, 4


class Plan(NamedTuple):
    """The parameters that are known at compile time.

    keys: Keys per tile. stages: Stages of the circular buffer. dynamic: Blocks draw their tiles of queries from a
    counter. Otherwise a block computes every grid-th tile. turns: Ping-pong: consumers alternate at the tensor cores.
    behind: The second GEMM of a tile overlaps with the softmax of the next.
    """

    head: int
    keys: int
    consumers: int
    stages: int
    causal: bool
    dynamic: bool
    turns: bool = True
    behind: bool = True

    @property
    def queries(self) -> int:
        """Queries of one block."""
        return QUERIES * self.consumers

    @property
    def guarded(self) -> bool:
        """Return whether a row may see no key in the first tile of keys, so that its largest score is -inf."""
        return self.causal and self.keys % self.queries != 0


def plan_for(head: int, tokens: int, causal: bool) -> Plan:
    """Return the plan that was the fastest on an H200."""
    if head == 128:
        return Plan(128, keys=128, consumers=2, stages=5, causal=causal, dynamic=causal)
    if causal and tokens <= SHORT:
        return Plan(64, keys=128, consumers=2, stages=6, causal=True, dynamic=True)
    return Plan(64, keys=128, consumers=3, stages=8, causal=causal, dynamic=causal)


@cute.jit
def forward(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    out: cute.Tensor,
    lse: cute.Tensor,
    counter: cute.Tensor,
    max_blocks: cutlass.Int32,
    section: cutlass.Int32,
    plan: cutlass.Constexpr,
):
    """q and out are [heads, tokens, head], k and v [kv_heads, tokens, head], lse is [heads, tokens].

    counter: tiles of queries drawn so far, beyond the first of each block. section: heads processed together.
    """
    q, k, v, out = (cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0])) for x in (q, k, v, out))
    rows, columns = LayoutEnum.ROW_MAJOR, LayoutEnum.COL_MAJOR
    qk_tile, pv_tile = (QUERIES, plan.keys, plan.head), (QUERIES, plan.head, plan.keys)
    # One stage holds a tile of keys or of values: the same bytes, which the second GEMM reads transposed.
    layout_q = hopper.make_smem_layout_a(rows, qk_tile, BF16, plan.consumers)
    layout_k = hopper.make_smem_layout_b(rows, qk_tile, BF16, plan.stages)
    layout_v = hopper.make_smem_layout_b(columns, pv_tile, BF16, plan.stages)
    box_q, box_kv = cute.select(layout_q, mode=[0, 1]), cute.select(layout_k, mode=[0, 1])
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    tiles = cute.ceil_div(q.shape[0], plan.queries) * q.shape[2]
    blocks = cutlass.min(tiles, max_blocks)
    attend(
        cpasync.make_tiled_tma_atom(load, q, box_q, (QUERIES, plan.head)),
        cpasync.make_tiled_tma_atom(load, k, box_kv, (plan.keys, plan.head)),
        cpasync.make_tiled_tma_atom(load, v, box_kv, (plan.keys, plan.head)),
        cpasync.make_tiled_tma_atom(store, out, box_q, (QUERIES, plan.head)),
        (layout_q, layout_k, layout_v),
        lse,
        counter,
        section,
        q.shape[2] // k.shape[2],
        plan,
    ).launch(grid=[blocks, 1, 1], block=[(1 + plan.consumers) * 128, 1, 1])


@cute.kernel
def attend(q, k, v, out, layouts, lse, counter, section, group, plan: cutlass.Constexpr):
    """Run the producer in warp 0, whose warpgroup gives up registers for the consumers, and consumers in the others."""
    layout_q, layout_k, layout_v = layouts
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    memory = SmemAllocator()
    barriers_q = memory.allocate_array(cutlass.Int64, 2 * plan.consumers)
    barriers_kv = memory.allocate_array(cutlass.Int64, 2 * plan.stages)
    handover = memory.allocate_array(cutlass.Int64, 2)  # the next tile's number is stored; all warps have read it
    next_tile = memory.allocate_tensor(cutlass.Int32, cute.make_layout(1), 8)
    sQ = memory.allocate_tensor(BF16, layout_q.outer, 1024, layout_q.inner)
    sK = memory.allocate_tensor(BF16, layout_k.outer, 1024, layout_k.inner)
    sV = cute.make_tensor(cute.recast_ptr(sK.iterator, layout_v.inner), layout_v.outer)
    sO = memory.allocate_tensor(BF16, layout_q.outer, 1024, layout_q.inner)
    q_pipeline = stages_of(barriers_q, plan.consumers, 1, layout_q)  # one for each consumer
    kv_pipeline = stages_of(barriers_kv, plan.stages, plan.consumers, layout_k)
    if warp_id == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_init(handover, 1)
            cute.arch.mbarrier_init(handover + 1, 4 * plan.consumers)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    tiles = counter, handover, next_tile, section

    if warp_id < 4:
        if cutlass.const_expr(REGISTERS[plan.consumers]):
            cute.arch.setmaxregister_decrease(REGISTERS[plan.consumers][0])
        if warp_id == 0:
            produce(tiles, q_pipeline, kv_pipeline, q, k, v, sQ, sK, group, plan)
    else:
        if cutlass.const_expr(REGISTERS[plan.consumers]):
            cute.arch.setmaxregister_increase(REGISTERS[plan.consumers][1])
        consume(tiles, q_pipeline, kv_pipeline, out, lse, sQ, sK, sV, sO, plan)


def stages_of(barriers, count: int, consumers: int, layout) -> pipeline.PipelineTmaAsync:
    """Return a pipeline. A stage is full when a box has landed, and free when 4 warps per consumer have released it."""
    return pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=count,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * consumers),
        tx_count=cute.size_in_bytes(BF16, cute.select(layout, mode=[0, 1])),
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        defer_sync=True,
    )


@cute.jit
def place(tile, tokens, heads, section, plan: cutlass.Constexpr):
    """Return a tile's head, its block of queries, and the number of key tiles that these queries see."""
    blocks = cute.ceil_div(tokens, plan.queries)
    head, block, last = tile // blocks, tile % blocks, tokens
    if cutlass.const_expr(plan.causal):
        first = tile // (section * blocks) * section
        width = cutlass.min(section, heads - first)
        turn = tile - first * blocks
        head, block = first + turn % width, blocks - 1 - turn // width
        last = cutlass.min((block + 1) * plan.queries, tokens)
    return head, block, cute.ceil_div(last, plan.keys)


@cute.jit
def produce(tiles, q_pipeline, kv_pipeline, q, k, v, sQ, sK, group, plan: cutlass.Constexpr):
    """Load the queries, then k0, k1, v0, k2, v1, ... in the order of their use. Rows past the last token become 0.

    Tile 0 of keys and values is the last one. q, k, v: the TMA copy, and the tensor that it reads. group: query heads
    that share a key head. tiles: the counter, the mbarriers and the place of the next tile's number, and the heads of a
    section.
    """
    block_index, grid = cute.arch.block_idx()[0], cute.arch.grid_dim()[0]
    (copy_q, q), (copy_k, k), (copy_v, v) = q, k, v
    tokens, heads = q.shape[0], q.shape[2]
    tQsQ, tQgQ = boxes(copy_q, sQ, q, (QUERIES, plan.head))
    tKsK, tKgK = boxes(copy_k, sK, k, (plan.keys, plan.head))
    _, tVgV = boxes(copy_v, sK, v, (plan.keys, plan.head))
    pipe_write_q = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, plan.consumers)
    pipe_write = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, plan.stages)
    counter, handover, next_tile, section = tiles
    tile, turn = cutlass.Int32(block_index), cutlass.Int32(0)
    while tile < cute.ceil_div(tokens, plan.queries) * heads:
        fetched = cutlass.Int32(0)
        # The result is not used before all copies of this tile are issued, so nothing waits for the atomic.
        if cutlass.const_expr(plan.dynamic) and cute.arch.lane_idx() == 0:
            fetched = cute.arch.atomic_add(counter.iterator.llvm_ptr, cutlass.Int32(1), sem="relaxed", scope="gpu")
        head, block, n_tiles = place(tile, tokens, heads, section, plan)
        for wg_id in cutlass.range_constexpr(plan.consumers):
            q_pipeline.producer_acquire(pipe_write_q)
            full = q_pipeline.producer_get_barrier(pipe_write_q)
            cute.copy(copy_q, tQgQ[None, block * plan.consumers + wg_id, head], tQsQ[None, wg_id], tma_bar_ptr=full)
            pipe_write_q.advance()
        for n_tile in cutlass.range(n_tiles + 1, unroll=1):
            if n_tile < n_tiles:
                tile_n = n_tiles - 1 - n_tile
                kv_pipeline.producer_acquire(pipe_write)
                full = kv_pipeline.producer_get_barrier(pipe_write)
                cute.copy(copy_k, tKgK[None, tile_n, head // group], tKsK[None, pipe_write.index], tma_bar_ptr=full)
                pipe_write.advance()
            if n_tile > 0:
                tile_n = n_tiles - n_tile
                kv_pipeline.producer_acquire(pipe_write)
                full = kv_pipeline.producer_get_barrier(pipe_write)
                cute.copy(copy_v, tVgV[None, tile_n, head // group], tKsK[None, pipe_write.index], tma_bar_ptr=full)
                pipe_write.advance()
        if cutlass.const_expr(plan.dynamic):
            tile = cute.arch.shuffle_sync(fetched, 0) + grid
            cute.arch.mbarrier_wait(handover + 1, turn % 2 ^ 1)
            if cute.arch.lane_idx() == 0:
                next_tile[0] = tile
                cute.arch.mbarrier_arrive(handover)
            turn += 1
        else:
            tile += grid


def boxes(copy, shared, matrix, shape):
    """Partition shared memory into (box, stage), and a [tokens, head, heads] tensor into (box, tile, head), for TMA."""
    tiles = cute.local_tile(matrix, shape, (None, 0, None))
    return cpasync.tma_partition(
        copy, 0, cute.make_layout(1), cute.group_modes(shared, 0, 2), cute.group_modes(tiles, 0, 2)
    )


@cute.jit
def consume(tiles, q_pipeline, kv_pipeline, out, lse, sQ, sK, sV, sO, plan: cutlass.Constexpr):
    """Compute 64 queries in a warpgroup: both GEMMs, the softmax between them, and the store of the result.

    q_pipeline: Consumer p reads stage p. out: The TMA copy, and the tensor that it writes.
    """
    block_index, grid = cute.arch.block_idx()[0], cute.arch.grid_dim()[0]
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    wg_id, tidx = warp_id // 4 - 1, cute.arch.thread_idx()[0] % 128
    copy_out, out = out
    tokens, heads = out.shape[0], out.shape[2]

    K, MN = LayoutEnum.ROW_MAJOR.sm90_mma_major_mode(), LayoutEnum.COL_MAJOR.sm90_mma_major_mode()
    tile_qk, tile_pv = (QUERIES, plan.keys), (QUERIES, plan.head)
    # The first wgmma of a tile of scores overwrites the accumulators, and the others add to them.
    mma_qk = [hopper.make_trivial_tiled_mma(BF16, BF16, K, K, F32, (1, 1, 1), tile_qk) for _ in range(2)]
    mma_pv = hopper.make_trivial_tiled_mma(BF16, BF16, K, MN, F32, (1, 1, 1), tile_pv, warpgroup.OperandSource.RMEM)
    mma_qk[0].set(warpgroup.Field.ACCUMULATE, False)
    mma_qk[1].set(warpgroup.Field.ACCUMULATE, True)
    mma_pv.set(warpgroup.Field.ACCUMULATE, True)
    thr_mma_qk, thr_mma_pv = mma_qk[0].get_slice(tidx), mma_pv.get_slice(tidx)
    tSrQ = mma_qk[0].make_fragment_A(thr_mma_qk.partition_A(sQ))[None, None, None, wg_id]
    tSrK = mma_qk[0].make_fragment_B(thr_mma_qk.partition_B(sK))
    tOrV = mma_pv.make_fragment_B(thr_mma_pv.partition_B(sV))
    acc = cute.make_rmem_tensor(mma_pv.partition_shape_C(tile_pv), F32)
    p = cute.make_rmem_tensor(mma_pv.partition_shape_A(tile_qk), BF16)
    m_i, l_i, alpha = (cute.make_rmem_tensor(2, F32) for _ in range(3))
    mmas = mma_qk, mma_pv, tSrQ, tSrK, tOrV
    state = acc, p, m_i, l_i, alpha
    first_row, first_key = thr_mma_qk.partition_C(cute.make_identity_tensor(tile_qk))[0]

    pipe_read_q = pipeline.PipelineState(plan.consumers, cutlass.Int32(0), wg_id, cutlass.Int32(0))
    pipe_read = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, plan.stages)
    if cutlass.const_expr(plan.turns) and wg_id == plan.consumers - 1:
        cute.arch.barrier_arrive(barrier_id=TURN, number_of_threads=256)
    _, handover, next_tile, section = tiles
    tile, turn = cutlass.Int32(block_index), cutlass.Int32(0)
    while tile < cute.ceil_div(tokens, plan.queries) * heads:
        head, block, n_tiles = place(tile, tokens, heads, section, plan)
        start_m = block * plan.queries + wg_id * QUERIES
        row = start_m + first_row
        # Every query sees every key of the first `unmasked_tiles` tiles.
        unmasked_tiles = cutlass.min((start_m if cutlass.const_expr(plan.causal) else tokens) // plan.keys, n_tiles)
        acc.fill(0.0)
        l_i.fill(0.0)
        m_i.fill(-F32.inf)
        q_pipeline.consumer_wait(pipe_read_q)
        kv_pipeline.consumer_wait(pipe_read)
        s = multiply_keys(mma_qk, tSrQ, tSrK[None, None, None, pipe_read.index], plan)
        warpgroup.wait_group(0)
        kv_pipeline.consumer_release(pipe_read)
        pipe_read.advance()
        last_key = first_key + (n_tiles - 1) * plan.keys
        online_softmax(s, m_i, l_i, alpha, row, last_key, tokens, True, plan)
        round_to(p, s)
        kv_pipeline.consumer_wait(pipe_read)
        first_unmasked = cutlass.max(n_tiles - unmasked_tiles, 1)  # the first step whose tile needs no mask
        for n_tile in cutlass.range(1, first_unmasked, unroll=1):
            coords = row, last_key - n_tile * plan.keys, tokens
            pipe_read = advance(kv_pipeline, pipe_read, mmas, state, wg_id, coords, True, plan)
        for n_tile in cutlass.range(first_unmasked, n_tiles, unroll=1):
            coords = row, last_key - n_tile * plan.keys, tokens
            pipe_read = advance(kv_pipeline, pipe_read, mmas, state, wg_id, coords, False, plan)
        q_pipeline.consumer_release(pipe_read_q)
        pipe_read_q.advance(plan.consumers)
        if cutlass.const_expr(plan.dynamic):
            cute.arch.mbarrier_wait(handover, turn % 2)
            tile = next_tile[0]
            cute.arch.sync_warp()
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(handover + 1)
            turn += 1
        else:
            tile += grid
        warpgroup.fence()
        multiply_values(mma_pv, acc, p, tOrV[None, None, None, pipe_read.index])
        warpgroup.wait_group(0)
        kv_pipeline.consumer_release(pipe_read)
        pipe_read.advance()

        finish(acc, m_i, l_i, lse, head, row, first_key, tokens, plan)
        write(copy_out, out, sO, acc, mma_pv, tidx, wg_id, warp_id, block * plan.consumers + wg_id, head, plan)
    if warp_id % 4 == 0:
        cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def advance(kv_pipeline, pipe_read, mmas, state, wg_id, coords, masked: cutlass.Constexpr, plan: cutlass.Constexpr):
    """Compute the scores of a tile whose keys are there, and overlap their softmax with the last tile's second GEMM."""
    (mma_qk, mma_pv, tSrQ, tSrK, tOrV), (acc, p, m_i, l_i, alpha) = mmas, state
    k_state, v_state = pipe_read.clone(), pipe_read.clone()
    v_state.advance()
    if cutlass.const_expr(plan.turns):
        cute.arch.barrier(barrier_id=TURN + wg_id, number_of_threads=256)
    s = multiply_keys(mma_qk, tSrQ, tSrK[None, None, None, k_state.index], plan)
    kv_pipeline.consumer_wait(v_state)
    multiply_values(mma_pv, acc, p, tOrV[None, None, None, v_state.index])
    if cutlass.const_expr(plan.turns):
        cute.arch.barrier_arrive(barrier_id=TURN + (wg_id + 1) % plan.consumers, number_of_threads=256)
    warpgroup.wait_group(1 if plan.behind else 0)
    kv_pipeline.consumer_release(k_state)
    online_softmax(s, m_i, l_i, alpha, *coords, masked, plan)
    pipe_read.advance(2)
    # ptxas would move the next wait up, in front of the exponentials, but can't move it past this loop.
    kv_pipeline.consumer_wait(pipe_read)
    warpgroup.wait_group(0)
    kv_pipeline.consumer_release(v_state)
    round_to(p, s)
    rescale(acc, alpha)
    return pipe_read


@cute.jit
def rescale(acc, alpha):
    """Multiply the accumulators of each row by its factor, unless the factor is 1 in all rows of the warp."""
    view = by_row(acc)
    if cute.arch.vote_any_sync(cutlass.min(alpha[0], alpha[1]) < 1.0):
        for r in cutlass.range_constexpr(2):
            view[r, None].store(view[r, None].load() * alpha[r])


def multiply_keys(qk, a, b, plan: Plan):
    """Issue q k^T of a tile as one group. Each tile has its own registers for scores, which avoids spills."""
    s = cute.make_rmem_tensor(qk[0].partition_shape_C((QUERIES, plan.keys)), F32)
    warpgroup.fence()
    for k in range(cute.size(a, mode=[2])):
        cute.gemm(qk[k > 0], s, a[None, None, k], b[None, None, k], s)
    warpgroup.commit_group()
    return s


def multiply_values(pv, acc, weights, values):
    """Issue acc += weights v of a tile as one group."""
    for k in range(cute.size(weights, mode=[2])):
        cute.gemm(pv, acc, weights[None, None, k], values[None, None, k], acc)
    warpgroup.commit_group()


def by_row(acc):
    """View a thread's accumulators as (2 rows, columns). It has two of every 8 columns, in rows r and r + 8."""
    return cute.make_tensor(acc.iterator, cute.make_layout((2, (2, cute.size(acc) // 4)), stride=(2, (1, 4))))


def round_to(weights, scores):
    """Round scores to the next wgmma's A operand, which uses the same registers in the same order."""
    cute.make_tensor(weights.iterator, scores.layout).store(scores.load().to(BF16))


@cute.jit
def online_softmax(s, m_i, l_i, alpha, row, key, tokens, masked: cutlass.Constexpr, plan: cutlass.Constexpr):
    """Turn scores into weights. m_i: a score of each row that no other has exceeded by more than RISE; l_i: this
    thread's part of its weights' sum.

    row, key: the indices of the thread's first score in the head. alpha: the factor for earlier weights.
    """
    scale = math.log2(math.e) / math.sqrt(plan.head)
    view = by_row(s)
    if cutlass.const_expr(masked):
        # Column by column: there are seven predicate registers, too few for all columns of a row.
        for i in cutlass.range_constexpr(cute.size(view, mode=[1])):
            for r in cutlass.range_constexpr(2):
                end = row + 8 * r + 1 if cutlass.const_expr(plan.causal) else tokens
                view[r, i] = -F32.inf if i // 2 * 8 + i % 2 >= end - key else view[r, i]
    for r in cutlass.range_constexpr(2):
        m_new = m_i[r]
        for i in cutlass.range_constexpr(cute.size(view, mode=[1])):
            m_new = cute.arch.fmax(m_new, view[r, i])
        m_new = cute.arch.warp_reduction_max(m_new, threads_in_group=4)
        m_new = m_i[r] if (m_new - m_i[r]) * scale <= RISE else m_new  # if both are -inf, the comparison is false
        base = m_new
        if cutlass.const_expr(plan.guarded and masked):
            base = 0.0 if m_new == -F32.inf else m_new
        alpha[r] = cute.math.exp2((m_i[r] - base) * scale, fastmath=True)
        m_i[r] = m_new
        view[r, None].store(cute.math.exp2(view[r, None].load() * scale - base * scale, fastmath=True))
        l_i[r] = view[r, None].load().reduce(cute.ReductionOp.ADD, l_i[r] * alpha[r], 0)


@cute.jit
def finish(acc, m_i, l_i, lse, head, row, key, tokens, plan: cutlass.Constexpr):
    """Divide by the sum of the weights and write the log-sum-exp. key: The thread's first column in a tile."""
    scale = math.log2(math.e) / math.sqrt(plan.head)
    view = by_row(acc)
    for r in cutlass.range_constexpr(2):
        row_sum = cute.arch.warp_reduction_sum(l_i[r], threads_in_group=4)
        view[r, None].store(view[r, None].load() * cute.arch.rcp_approx(row_sum))
        if key == 0 and row + 8 * r < tokens:
            lse[head, row + 8 * r] = (m_i[r] * scale + cute.math.log2(row_sum, fastmath=True)) * math.log(2)


@cute.jit
def write(copy_out, out, sO, acc, mma_pv, tidx, wg_id, warp_id, tile, head, plan: cutlass.Constexpr):
    """Store the accumulators by TMA, through the consumer's part of shared memory.

    tidx: Index in the warpgroup. wg_id: The consumer's number. tile: The index of its 64 queries in the head.
    """
    rO = cute.make_rmem_tensor_like(acc, BF16)
    rO.store(acc.load().to(BF16))
    atom = hopper.sm90_get_smem_store_op(LayoutEnum.ROW_MAJOR, BF16, F32)
    to_smem = cute.make_tiled_copy_C(atom, mma_pv).get_slice(tidx)
    tOsO, tOgO = boxes(copy_out, sO, out, (QUERIES, plan.head))
    if warp_id % 4 == 0:
        cute.arch.cp_async_bulk_wait_group(0, read=True)  # the last store has read this memory
    cute.arch.barrier(barrier_id=WRITE + wg_id, number_of_threads=128)
    cute.copy(atom, to_smem.retile(rO), to_smem.partition_D(sO)[None, None, None, wg_id])
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.barrier(barrier_id=WRITE + wg_id, number_of_threads=128)
    if warp_id % 4 == 0:
        cute.copy(copy_out, tOsO[None, wg_id], tOgO[None, tile, head])
        cute.arch.cp_async_bulk_commit_group()


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    heads, tokens, head = q.shape[1:]
    plan = plan_for(head, tokens, causal)
    counter = q.new_empty(1, dtype=torch.int32)
    if plan.dynamic:
        counter.zero_()
    section = max(SECTION_HEADS, SECTION_BYTES // (4 * tokens * head)) * (heads // k.shape[1])
    blocks = torch.cuda.get_device_properties(q.device if q.is_cuda else None).multi_processor_count
    lane.run(forward, *(x.flatten(0, 1) for x in (q, k, v, out, lse)), counter, blocks, section, plan)
    return out, lse
