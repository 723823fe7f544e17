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

# Heads that a causal grid computes together, longest tiles first, so that L2 holds their keys and values.
HEADS_AT_A_TIME = 16

# Up to this many tokens, causal heads of 64 use smaller blocks.
SHORT = 4096

# Registers per thread of the producer's warpgroup and of a consumer, by the number of consumers.
REGISTERS = {1: None, 2: (24, 240), 3: (32, 160)}

# Named barriers of the first consumer. The others use the following numbers. Barrier 0 is sync_threads.
TURN, WRITE = 1, 4


class Plan(NamedTuple):
    """The parameters that are known at compile time.

    keys: Keys per tile. stages: Stages of the circular buffer. resident: Blocks are persistent, so the loads of a tile
    of queries overlap with the end of the tile before. Otherwise each tile is a block that runs on whichever SM is
    free, which suits tiles of unequal length. turns: Ping-pong: consumers alternate at the tensor cores. behind: The
    second GEMM of a tile overlaps with the softmax of the next.
    """

    head: int
    keys: int
    consumers: int
    stages: int
    causal: bool
    resident: bool
    turns: bool = True
    behind: bool = True

    @property
    def queries(self) -> int:
        """Queries of one block."""
        return QUERIES * self.consumers


def plan_for(head: int, tokens: int, causal: bool) -> Plan:
    """Return the plan that was the fastest on an H200."""
    if head == 128:
        return Plan(128, keys=128, consumers=2, stages=5, causal=causal, resident=not causal)
    if causal and tokens <= SHORT:
        return Plan(64, keys=128, consumers=2, stages=6, causal=True, resident=True)
    return Plan(64, keys=128, consumers=3, stages=8, causal=causal, resident=not causal)


@cute.jit
def forward(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    out: cute.Tensor,
    lse: cute.Tensor,
    max_blocks: cutlass.Int32,
    plan: cutlass.Constexpr,
):
    """q and out are [heads, tokens, head], k and v [kv_heads, tokens, head], lse is [heads, tokens]."""
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
        q.shape[2] // k.shape[2],
        plan,
    ).launch(grid=[blocks, 1, 1], block=[(1 + plan.consumers) * 128, 1, 1])


@cute.kernel
def attend(q, k, v, out, layouts, lse, group, plan: cutlass.Constexpr):
    """Run the producer in warp 0, whose warpgroup gives up registers for the consumers, and consumers in the others."""
    layout_q, layout_k, layout_v = layouts
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    memory = SmemAllocator()
    barriers_q = memory.allocate_array(cutlass.Int64, 2 * plan.consumers)
    barriers_kv = memory.allocate_array(cutlass.Int64, 2 * plan.stages)
    sQ = memory.allocate_tensor(BF16, layout_q.outer, 1024, layout_q.inner)
    sK = memory.allocate_tensor(BF16, layout_k.outer, 1024, layout_k.inner)
    sV = cute.make_tensor(cute.recast_ptr(sK.iterator, layout_v.inner), layout_v.outer)
    sO = memory.allocate_tensor(BF16, layout_q.outer, 1024, layout_q.inner)
    q_pipeline = stages_of(barriers_q, plan.consumers, 1, layout_q)  # one for each consumer
    kv_pipeline = stages_of(barriers_kv, plan.stages, plan.consumers, layout_k)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    if warp_id < 4:
        if cutlass.const_expr(REGISTERS[plan.consumers]):
            cute.arch.setmaxregister_decrease(REGISTERS[plan.consumers][0])
        if warp_id == 0:
            produce(q_pipeline, kv_pipeline, q, k, v, sQ, sK, group, plan)
    else:
        if cutlass.const_expr(REGISTERS[plan.consumers]):
            cute.arch.setmaxregister_increase(REGISTERS[plan.consumers][1])
        consume(q_pipeline, kv_pipeline, out, lse, sQ, sK, sV, sO, plan)


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
def place(tile, tokens, heads, plan: cutlass.Constexpr):
    """Return a tile's head, its block of queries, and the number of key tiles that these queries see."""
    blocks = cute.ceil_div(tokens, plan.queries)
    head, block, last = tile // blocks, tile % blocks, tokens
    if cutlass.const_expr(plan.causal):
        first = tile // (HEADS_AT_A_TIME * blocks) * HEADS_AT_A_TIME
        width = cutlass.min(HEADS_AT_A_TIME, heads - first)
        turn = tile - first * blocks
        head, block = first + turn % width, blocks - 1 - turn // width
        last = cutlass.min((block + 1) * plan.queries, tokens)
    return head, block, cute.ceil_div(last, plan.keys)


@cute.jit
def produce(q_pipeline, kv_pipeline, q, k, v, sQ, sK, group, plan: cutlass.Constexpr):
    """Load the queries, then k0, k1, v0, k2, v1, ... in the order of their use. Rows past the last token become 0.

    q, k, v: The TMA copy, and the tensor that it reads. group: Query heads that share a key head.
    """
    # TODO: acquire a stage, copy a box, advance; for each tile of queries that this block takes


def boxes(copy, shared, matrix, shape):
    """Partition shared memory into (box, stage), and a [tokens, head, heads] tensor into (box, tile, head), for TMA."""
    tiles = cute.local_tile(matrix, shape, (None, 0, None))
    return cpasync.tma_partition(
        copy, 0, cute.make_layout(1), cute.group_modes(shared, 0, 2), cute.group_modes(tiles, 0, 2)
    )


@cute.jit
def consume(q_pipeline, kv_pipeline, out, lse, sQ, sK, sV, sO, plan: cutlass.Constexpr):
    """Compute 64 queries in a warpgroup: both GEMMs, the softmax between them, and the store of the result.

    q_pipeline: Consumer p reads stage p. out: The TMA copy, and the tensor that it writes.
    """
    # TODO: build the MMAs, loop over the tiles of keys, finish and write


def by_row(acc):
    """View a thread's accumulators as (2 rows, columns). It has two of every 8 columns, in rows r and r + 8."""
    return cute.make_tensor(acc.iterator, cute.make_layout((2, (2, cute.size(acc) // 4)), stride=(2, (1, 4))))


def round_to(weights, scores):
    """Round scores to the next wgmma's A operand, which uses the same registers in the same order."""
    cute.make_tensor(weights.iterator, scores.layout).store(scores.load().to(BF16))


@cute.jit
def online_softmax(s, m_i, l_i, alpha, row, key, tokens, masked: cutlass.Constexpr, plan: cutlass.Constexpr):
    """Turn scores into weights, and update the running statistics of each row.

    m_i: The largest score so far, without the scale. l_i: This thread's part of the sum of weights. alpha: The factor
    for everything accumulated before this tile. row, key: The indices of the thread's first score in the head.
    """
    # TODO: mask, the maximum of each row over four lanes, exponentials, their sum


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
    raise NotImplementedError("TODO: write produce, consume and online_softmax, then delete this line")
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    plan = plan_for(q.shape[3], q.shape[2], causal)
    blocks = (
        torch.cuda.get_device_properties(q.device if q.is_cuda else None).multi_processor_count
        if plan.resident
        else 2**31 - 1
    )
    lane.run(forward, *(x.flatten(0, 1) for x in (q, k, v, out, lse)), blocks, plan)
    return out, lse
