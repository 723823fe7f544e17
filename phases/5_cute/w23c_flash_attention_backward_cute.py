"""Attention backward on Hopper: five GEMMs, whose results stay in registers or are added up in memory.

flash_attention_backward(q, k, v, out, lse, dout, causal) takes contiguous bfloat16 tensors that start at a multiple of
16 bytes: q, out and dout of shape (batch, heads, tokens, head), and k and v of shape (batch, kv_heads, tokens, head),
where head is 64 or 128 and heads is a multiple of kv_heads. Query head h reads key head h // (heads // kv_heads). With
scores = q @ k^T / sqrt(head), lse is the natural logarithm of each query's sum of exp(scores), in float32 and of shape
(batch, heads, tokens). out is softmax(scores) @ v as the forward pass rounded it, and dout is its gradient. causal is a
bool. If it is true, query i sees the keys 0 to i, otherwise all keys. The function returns dq, dk and dv, new bfloat16
tensors with the shapes of q, k and v. There may be any number of tokens, heads and batches, and tensors have fewer than
2**31 elements.

With p = exp(scores - lse), and delta = sum(dout * out) for each query:

    dv = p^T @ dout        ds = p * (dout @ v^T - delta) / sqrt(head)        dq = ds @ k        dk = ds^T @ q

where dk and dv of a key head are sums over the query heads that read it. Accumulate in float32.

A block computes dk and dv of 128 keys, in registers. A producer warp uses TMA to load the keys and values once, and
then each tile of queries, with its part of dout, lse and delta. Consumers are warpgroups with 64 keys each. Each
computes p^T and ds^T with keys as rows, which are the A operands of the GEMMs for dv and dk in the same registers. The
GEMM for dq sums over the keys of all consumers, so ds goes through shared memory, too. Its result is only a part of dq,
to which other blocks add as well. A separate warp adds it to float32 sums in global memory, with TMA
(cp.reduce.async.bulk).

prepare and round_dq are given: they compute delta before this kernel, and round the sums of dq after it. Start with
consumers that wait for each GEMM. The grader checks the values, the memory that is allocated in addition to inputs and
outputs, and every wait, and on a GPU compares the time with the formulas written as PyTorch operators.

The grader enforces these limits on the largest case (batch=1 heads=4 kv_heads=2 tokens=200 head=64 causal=True
dtype=bfloat16); smaller cases get some slack for partial tiles. Each load or store may touch at most 2.1 times the
sectors that its bytes require. Any workspace may be at most 0.45 times the size of the inputs and outputs. The
multiply-adds must run on tensor cores.
"""

import math

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

BF16, F32 = cutlass.BFloat16, cutlass.Float32
ROWS, COLUMNS = LayoutEnum.ROW_MAJOR, LayoutEnum.COL_MAJOR
LOG2_E = math.log2(math.e)

# Queries of a tile, and keys of a consumer, which are the rows of a wgmma.
QUERIES, KEYS = 64, 64
CONSUMERS, STAGES = 2, 2

# Key heads that the grid computes together, longest blocks first, so that L2 holds their queries.
HEADS_AT_A_TIME = 8

# Named barriers. Barrier 0 is sync_threads, and the consumers share DS. EMPTY and FULL belong to the first consumer and
# the warp that adds to dq, and WRITE belongs only to the first consumer. The second consumer uses the following
# numbers.
DS, EMPTY, FULL, WRITE = 1, 2, 4, 6


@cute.jit
def backward(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    out: cute.Tensor,
    lse: cute.Tensor,
    dout: cute.Tensor,
    dq: cute.Tensor,
    dk: cute.Tensor,
    dv: cute.Tensor,
    lse2: cute.Tensor,
    delta: cute.Tensor,
    acc: cute.Tensor,
    head: cutlass.Constexpr,
    causal: cutlass.Constexpr,
):
    """q, out, dout, dq and acc are [heads, tokens, head], and k, v, dk and dv [kv_heads, tokens, head].

    lse is [heads, tokens]. lse2 and delta are vectors that hold QUERIES elements for each tile of queries.
    """
    tiles = lse2.shape[0] // QUERIES
    prepare(out, dout, lse, lse2, delta, head).launch(grid=[tiles, 1, 1], block=[8 * head, 1, 1])
    q, k, v, dout, dk, dv, sums = (
        cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0])) for x in (q, k, v, dout, dk, dv, acc)
    )
    # The same bytes are read as [queries, head] and as [head, queries]; the same holds for keys, and for ds.
    of_q = hopper.make_smem_layout_b(ROWS, (KEYS, QUERIES, head), BF16, STAGES)
    of_qt = hopper.make_smem_layout_b(COLUMNS, (KEYS, head, QUERIES), BF16, STAGES)
    of_k = hopper.make_smem_layout_a(ROWS, (KEYS, QUERIES, head), BF16, CONSUMERS)
    of_kt = hopper.make_smem_layout_b(COLUMNS, (QUERIES, head, KEYS), BF16, CONSUMERS)
    of_ds = hopper.make_smem_layout_a(ROWS, (KEYS, head, QUERIES), BF16, CONSUMERS)
    of_dst = hopper.make_smem_layout_a(COLUMNS, (QUERIES, head, KEYS), BF16, CONSUMERS)
    of_dq = hopper.make_smem_layout_a(ROWS, (QUERIES, KEYS, head // CONSUMERS), F32, CONSUMERS)
    box_q, box_k, box_dq = (cute.select(layout, mode=[0, 1]) for layout in (of_q, of_k, of_dq))
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    add = cpasync.CopyReduceBulkTensorTileS2GOp()
    blocks = cute.ceil_div(k.shape[0], CONSUMERS * KEYS) * k.shape[2]
    differentiate(
        cpasync.make_tiled_tma_atom(load, q, box_q, (QUERIES, head)),
        cpasync.make_tiled_tma_atom(load, dout, box_q, (QUERIES, head)),
        cpasync.make_tiled_tma_atom(load, k, box_k, (KEYS, head)),
        cpasync.make_tiled_tma_atom(load, v, box_k, (KEYS, head)),
        cpasync.make_tiled_tma_atom(store, dk, box_k, (KEYS, head)),
        cpasync.make_tiled_tma_atom(store, dv, box_k, (KEYS, head)),
        cpasync.make_tiled_tma_atom(add, sums, box_dq, (QUERIES, head // CONSUMERS)),
        (of_q, of_qt, of_k, of_kt, of_ds, of_dst, of_dq),
        lse2,
        delta,
        head,
        causal,
    ).launch(grid=[blocks, 1, 1], block=[(1 + CONSUMERS) * 128, 1, 1])
    flat_acc, flat_dq = (cute.make_tensor(x.iterator, cute.make_layout(cute.size(x))) for x in (acc, dq))
    round_dq(flat_acc, flat_dq, head).launch(grid=[cute.ceil_div(cute.size(acc), 1024), 1, 1], block=[128, 1, 1])


@cute.kernel
def prepare(out, dout, lse, lse2, delta, head: cutlass.Constexpr):
    """Compute delta = sum(out * dout) of a tile of queries, and lse2 = lse * log2(e), infinite past the last query.

    There are 8 threads for each column of out, and each loads 8 columns of a row.
    """
    tile, thread = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
    tokens, lanes = out.shape[1], head // 8
    tiles = cute.ceil_div(tokens, QUERIES)
    query_head, row, part = tile // tiles, thread // lanes, thread % lanes
    query = tile % tiles * QUERIES + row
    sums = SmemAllocator().allocate_tensor(F32, cute.make_layout(QUERIES), 16)
    total = F32(0.0)
    if query < tokens:
        vectors = [cute.make_rmem_tensor(8, BF16) for _ in range(2)]
        for source, vector in zip((out, dout), vectors, strict=True):
            cute.autovec_copy(cute.local_tile(source[query_head, query, None], (8,), (part,)), vector)
        total = (vectors[0].load().to(F32) * vectors[1].load().to(F32)).reduce(cute.ReductionOp.ADD, 0.0, 0)
    total = cute.arch.warp_reduction_sum(total, threads_in_group=lanes)
    if part == 0:
        sums[row] = total
    cute.arch.sync_threads()
    if thread < QUERIES:
        delta[tile * QUERIES + thread] = sums[thread]
        query = tile % tiles * QUERIES + thread
        scaled = F32.inf
        if query < tokens:
            scaled = lse[query_head, query] * LOG2_E
        lse2[tile * QUERIES + thread] = scaled


@cute.kernel
def round_dq(acc, dq, head: cutlass.Constexpr):
    """Scale and round 1024 elements, 8 per thread."""
    at = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if at * 8 < cute.size(acc):
        total, rounded = cute.make_rmem_tensor(8, F32), cute.make_rmem_tensor(8, BF16)
        cute.autovec_copy(cute.local_tile(acc, (8,), (at,)), total)
        rounded.store((total.load() * (1 / math.sqrt(head))).to(BF16))
        cute.autovec_copy(rounded, cute.local_tile(dq, (8,), (at,)))


@cute.kernel
def differentiate(
    q, dout, k, v, dk, dv, add_dq, layouts, lse2, delta, head: cutlass.Constexpr, causal: cutlass.Constexpr
):
    """Compute dk and dv of 128 keys, and add their part of dq for each query that sees one of them."""
    of_q, of_qt, of_k, of_kt, of_ds, of_dst, of_dq = layouts
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    memory = SmemAllocator()
    barriers_q, barriers_do = (memory.allocate_array(cutlass.Int64, 2 * STAGES) for _ in range(2))
    barriers_kv = memory.allocate_array(cutlass.Int64, 2)
    shared_lse, shared_delta = (memory.allocate_tensor(F32, cute.make_layout((QUERIES, STAGES)), 128) for _ in range(2))
    shared_k, shared_v = (memory.allocate_tensor(BF16, of_k.outer, 1024, of_k.inner) for _ in range(2))
    shared_q, shared_do = (memory.allocate_tensor(BF16, of_q.outer, 1024, of_q.inner) for _ in range(2))
    shared_ds = memory.allocate_tensor(BF16, of_ds.outer, 1024, of_ds.inner)
    shared_dq = memory.allocate_tensor(F32, of_dq.outer, 1024, of_dq.inner)
    rings = [stages_of(barriers, STAGES, QUERIES * (2 * head + 4)) for barriers in (barriers_q, barriers_do)]
    keys = stages_of(barriers_kv, 1, 4 * CONSUMERS * KEYS * head)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    tokens, kv_heads = k[1].shape[0], k[1].shape[2]
    kv_head, block = place(cute.arch.block_idx()[0], tokens, kv_heads)
    tiles = cute.ceil_div(tokens, QUERIES)
    first = block * CONSUMERS if cutlass.const_expr(causal) else 0  # the first tile of queries that sees a key
    work = kv_head, block, q[1].shape[2] // kv_heads, first, tiles
    if warp_id < 4:
        cute.arch.setmaxregister_decrease(24)
        if warp_id == 0:
            shared = shared_q, shared_do, shared_k, shared_v, shared_lse, shared_delta
            produce(work, rings, keys, (q, dout, k, v, lse2, delta), shared, head)
        if warp_id == 1:
            add_to_dq(work, add_dq, shared_dq, head)
    else:
        cute.arch.setmaxregister_increase(240)
        views = ((shared_q, of_qt), (shared_do, of_qt), (shared_k, of_kt), (shared_ds, of_dst))
        transposed = [cute.make_tensor(cute.recast_ptr(x.iterator, view.inner), view.outer) for x, view in views]
        shared = shared_q, shared_do, shared_k, shared_v, shared_lse, shared_delta, shared_ds, shared_dq
        consume(work, rings, keys, shared, transposed, (dk, dv), tokens, head, causal)


def stages_of(barriers, count: int, size: int) -> pipeline.PipelineTmaAsync:
    """Return a pipeline. A stage is full when `size` bytes have landed, and free when all consumers release it."""
    return pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=count,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * CONSUMERS),
        tx_count=size,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        defer_sync=True,
    )


@cute.jit
def place(index, tokens, kv_heads):
    """Return a block's key head and tile of keys. The first keys of a causal head are seen by the most queries."""
    blocks = cute.ceil_div(tokens, CONSUMERS * KEYS)
    begin = index // (HEADS_AT_A_TIME * blocks) * HEADS_AT_A_TIME
    width = cutlass.min(HEADS_AT_A_TIME, kv_heads - begin)
    turn = index - begin * blocks
    return begin + turn % width, turn // width


def boxes(copy, shared, matrix, shape):
    """Partition shared memory into (box, stage), and a [tokens, head, heads] tensor into (box, rows, columns, head)."""
    tiles = cute.local_tile(matrix, shape, (None, None, None))
    return cpasync.tma_partition(
        copy, 0, cute.make_layout(1), cute.group_modes(shared, 0, 2), cute.group_modes(tiles, 0, 2)
    )


@cute.jit
def produce(work, rings, keys, tensors, shared, head: cutlass.Constexpr):
    """Load the block's keys and values, and then each tile of queries with the vectors that belong to it.

    work: The block's key head, its tile of keys, the query heads that share the key head, the first tile of queries
    that sees a key, and the number of tiles. tensors: TMA copies with the tensors that they read, and two vectors.
    """
    # TODO: acquire a stage, copy its boxes and its vector, advance; for each tile of queries


@cute.jit
def add_to_dq(work, add_dq, shared_dq, head: cutlass.Constexpr):
    """Add each consumer's part of a tile of dq to global memory, and hand its shared memory back."""
    # TODO: wait for each consumer's part, add it, and hand its memory back once TMA has read it


@cute.jit
def consume(work, rings, keys, shared, transposed, targets, tokens, head: cutlass.Constexpr, causal: cutlass.Constexpr):
    """Compute dk and dv of 64 keys in a warpgroup, and for each tile of queries half the columns of dq."""
    # TODO: build the MMAs, loop over the tiles of queries, and write dk and dv


def multiply(mma, acc, a, b):
    """Issue acc = a b^T of a tile as one group."""
    warpgroup.fence()
    for k in range(cute.size(a, mode=[2])):
        cute.gemm(mma[k > 0], acc, a[None, None, k], b[None, None, k], acc)
    warpgroup.commit_group()


def by_row(acc):
    """View a thread's accumulators as (2 rows, columns). It has two of every 8 columns, in rows r and r + 8."""
    return cute.make_tensor(acc.iterator, cute.make_layout((2, (2, cute.size(acc) // 4)), stride=(2, (1, 4))))


def round_to(operand, acc):
    """Round accumulators to the next wgmma's A operand, which uses the same registers in the same order."""
    cute.make_tensor(operand.iterator, acc.layout).store(acc.load().to(BF16))


@cute.jit
def differentiate_softmax(
    scores, dp, lse2, delta, key, column, last, head: cutlass.Constexpr, causal: cutlass.Constexpr
):
    """Turn scores into p, and dp into ds without the scale.

    lse2, delta: Values of the tile's queries. key, column: The key, and the query's index in the tile, of the thread's
    first score. last: The last key that the query of this score sees.
    """
    # TODO: exponentials, the mask, ds


@cute.jit
def write(acc, memory, target, mma, thread, part, block, kv_head, head: cutlass.Constexpr):
    """Store a consumer's accumulators as bfloat16 by TMA, through its part of shared memory."""
    copy, out = target
    result = cute.make_rmem_tensor_like(acc, BF16)
    result.store(acc.load().to(BF16))
    atom = hopper.sm90_get_smem_store_op(ROWS, BF16, F32)
    to_shared = cute.make_tiled_copy_C(atom, mma).get_slice(thread)
    cute.copy(atom, to_shared.retile(result), to_shared.partition_D(memory)[None, None, None, part])
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.barrier(barrier_id=WRITE + part, number_of_threads=128)
    from_shared, to_out = boxes(copy, memory, out, (KEYS, head))
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
        cute.copy(copy, from_shared[None, part], to_out[None, block * CONSUMERS + part, 0, kv_head])
        cute.arch.cp_async_bulk_commit_group()


def flash_attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError("TODO: write the four functions with a TODO, then delete this line")
    batch, heads, tokens, head = q.shape
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    acc = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    padded = batch * heads * -(-tokens // QUERIES) * QUERIES
    lse2, delta = (q.new_empty(padded, dtype=torch.float32) for _ in range(2))
    flat = [x.flatten(0, 1) for x in (q, k, v, out, lse, dout, dq, dk, dv)]
    lane.run(backward, *flat, lse2, delta, acc.flatten(0, 1), head, causal)
    return dq, dk, dv
