"""Flash attention, backward: dq, dk and dv without the matrix of scores.

flash_attention_backward(q, k, v, out, lse, dout, causal) takes bfloat16 tensors: q, out, and dout of shape (batch,
heads, tokens, head), and k and v of shape (batch, kv_heads, tokens, head). head is 64 or 128, tokens is any number, and
heads is a multiple of kv_heads; query head h reads key head h // (heads // kv_heads). With scores = q @ k^T /
sqrt(head), lse is the natural logarithm of each query's sum of exp(scores), in float32 and of shape (batch, heads,
tokens). out is softmax(scores) @ v as the forward pass rounded it, and dout is its gradient. If causal is True, query i
sees the keys 0 to i. All tensors are contiguous and start at a multiple of 16 bytes. A tensor may have more than 2**32
elements, so offsets need 64 bits. It returns dq, dk, and dv, bfloat16 tensors with the shapes of q, k, and v. On GPUs
older than sm_80, which lack bfloat16, all bfloat16 tensors are float16 instead.

With p = exp(scores - lse), and delta = sum(dout * out) for each query:

    dv = p^T @ dout        ds = p * (dout @ v^T - delta) / sqrt(head)        dq = ds @ k        dk = ds^T @ q

where dk and dv of a key head are sums over the query heads that read it. p and ds exist only one tile at a time;
recompute each tile from q, k, v, dout, lse, and delta. Round p and ds to bfloat16 for the tensor cores, and accumulate
in float32. The grader checks the values, the memory traffic, and on a GPU compares the time with the formulas written
as operators.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. Each load or store
may touch at most 2.1 times the sectors that its bytes require. Any workspace may be at most 0.4 times the size of the
inputs and outputs. The multiply-adds must run on tensor cores.

Operations: five GEMMs of 2 * tokens**2 * head per query head, and half of that if causal; 1.37e12 for 4 x 16 heads of
size 128 and 4096 tokens. Bytes: 8 tensors, 540 MB. The tensor cores limit the kernel.

Two kernels compute seven GEMMs. One holds a block of queries and loops over the keys. It computes scores and dp, then
dq, and also delta. The other holds a block of keys and loops over the queries of its group. It computes scores and dp
again, then dv and dk. No two programs write to the same address, so every run returns the same bits.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = tl.constexpr(1.4426950408889634)

# Queries, keys, stages and warps of both kernels, on Hopper or not, by the size of a head.
TILES = {
    (True, 64): ((128, 64, 3, 4), (64, 64, 3, 4)),
    (True, 128): ((128, 64, 3, 8), (64, 64, 2, 4)),
    (False, 64): ((32, 32, 2, 4), (32, 32, 2, 4)),
    (False, 128): ((32, 32, 2, 4), (32, 32, 2, 4)),
}


@triton.jit
def add_keys(
    dq, query, upper, k, v, lse2, delta, at, low, high, tokens, fold, kv_head, MASKED: tl.constexpr,
    CAUSAL: tl.constexpr, HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add the contribution of the keys from low to high to dq of a block of queries. MASKED: some keys are hidden."""
    for begin in tl.range(low, high, KEYS, num_stages=STAGES):
        key = k.load([kv_head, begin, 0]).reshape([KEYS, HEAD])
        value = v.load([kv_head, begin, 0]).reshape([KEYS, HEAD])
        scores = tl.dot(query, key.T)
        dp = tl.dot(upper, value.T, tl.zeros([QUERIES, KEYS], tl.float32) - delta[:, None])  # begins at -delta
        p = tl.exp2(scores * fold - lse2[:, None])
        if MASKED:
            column = (begin + tl.arange(0, KEYS))[None, :]
            p = tl.where(column <= at[:, None] if CAUSAL else column < tokens, p, 0.0)
        dq = tl.dot((p * dp).to(key.dtype), key, dq)
    return dq


@triton.jit(do_not_specialize=["tokens", "group"])
def gradient_of_queries(
    dq, lses, deltas, q, k, v, out, lse, dout, tokens, padded, scale, group, CAUSAL: tl.constexpr, RAGGED: tl.constexpr,
    HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute dq for QUERIES queries of a head, and lses and deltas for the other kernel, padded to whole blocks.

    RAGGED: the last block of keys is not full.
    """
    blocks = tl.cdiv(tokens, QUERIES)
    head = tl.program_id(0) // blocks
    first = (blocks - 1 - tl.program_id(0) % blocks) * QUERIES  # those that see the most keys begin first
    query = q.load([head, first, 0]).reshape([QUERIES, HEAD])
    upper = dout.load([head, first, 0]).reshape([QUERIES, HEAD])
    result = out.load([head, first, 0]).reshape([QUERIES, HEAD])
    delta = tl.sum(upper.to(tl.float32) * result.to(tl.float32), axis=1)
    at = first + tl.arange(0, QUERIES)
    lse2 = tl.load(lse + head.to(tl.int64) * tokens + at, mask=at < tokens, other=float("inf")) * LOG2_E
    tl.store(lses + head.to(tl.int64) * padded + at, lse2)  # infinite past the last query, so that p is 0 there
    tl.store(deltas + head.to(tl.int64) * padded + at, delta)
    fold = scale * LOG2_E
    total = tl.zeros([QUERIES, HEAD], tl.float32)
    seen_by_all = first // KEYS * KEYS if CAUSAL else tokens
    total = add_keys(total, query, upper, k, v, lse2, delta, at, 0, seen_by_all, tokens, fold, head // group,
                     RAGGED, CAUSAL, HEAD, QUERIES, KEYS, STAGES)  # fmt: skip
    if CAUSAL:
        end = tl.minimum(first + QUERIES, tokens)
        total = add_keys(total, query, upper, k, v, lse2, delta, at, seen_by_all, end, tokens, fold, head // group,
                         True, CAUSAL, HEAD, QUERIES, KEYS, STAGES)  # fmt: skip
    dq.store([head, first, 0], (total * scale).to(query.dtype).reshape([1, QUERIES, HEAD]))


@triton.jit
def add_queries(
    dk, dv, key, value, q, dout, lses, deltas, at, low, high, fold, head, CAUSAL: tl.constexpr,
    HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add the contribution of the queries from low to high to dk and dv of a block of keys.

    Here keys are the rows of the tiles. One GEMM leaves p and ds in the registers from which the next reads its left
    operand, so they never go through shared memory.
    """
    for begin in tl.range(low, high, QUERIES, num_stages=STAGES):
        query = q.load([head, begin, 0]).reshape([QUERIES, HEAD])
        upper = dout.load([head, begin, 0]).reshape([QUERIES, HEAD])
        column = begin + tl.arange(0, QUERIES)
        lse2 = tl.load(lses + column)
        delta = tl.load(deltas + column)
        scores = tl.dot(key, query.T)
        dp = tl.dot(value, upper.T, tl.zeros(scores.shape, tl.float32) - delta[None, :])  # begins at -delta
        p = tl.exp2(scores * fold - lse2[None, :])
        if CAUSAL:  # in every tile: a second loop without the mask costs registers, and ptxas would spill some
            p = tl.where(at[:, None] <= column[None, :], p, 0.0)
        dv = tl.dot(p.to(query.dtype), upper, dv)
        ds = p * dp
        dk = tl.dot(ds.to(query.dtype), query, dk)
    return dk, dv


@triton.jit(do_not_specialize=["tokens", "group"])
def gradients_of_keys(
    dk, dv, lses, deltas, q, k, v, dout, tokens, padded, scale, group, CAUSAL: tl.constexpr,
    HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv for KEYS keys of a key head, summed over the query heads that read it.

    Keys past the last key need no mask: they are separate rows in every GEMM, and these rows are not stored.
    """
    blocks = tl.cdiv(tokens, KEYS)
    kv_head = tl.program_id(0) // blocks
    first = tl.program_id(0) % blocks * KEYS
    key = k.load([kv_head, first, 0]).reshape([KEYS, HEAD])
    value = v.load([kv_head, first, 0]).reshape([KEYS, HEAD])
    at = first + tl.arange(0, KEYS)
    of_k = tl.zeros([KEYS, HEAD], tl.float32)
    of_v = tl.zeros([KEYS, HEAD], tl.float32)
    fold = scale * LOG2_E
    for head in range(kv_head * group, kv_head * group + group):
        of_lse, of_delta = lses + head.to(tl.int64) * padded, deltas + head.to(tl.int64) * padded
        begin = first if CAUSAL else 0
        of_k, of_v = add_queries(of_k, of_v, key, value, q, dout, of_lse, of_delta, at, begin, tokens, fold,
                                 head, CAUSAL, HEAD, QUERIES, KEYS, STAGES)  # fmt: skip
    dk.store([kv_head, first, 0], (of_k * scale).to(key.dtype).reshape([1, KEYS, HEAD]))
    dv.store([kv_head, first, 0], of_v.to(key.dtype).reshape([1, KEYS, HEAD]))


def flash_attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, heads, tokens, head = q.shape
    group = heads // k.shape[1]
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    hopper = torch.cuda.get_device_capability()[0] >= 9
    for_queries, for_keys = TILES[hopper, head]

    def boxes(rows: int, *tensors: torch.Tensor) -> list[TensorDescriptor]:
        return [TensorDescriptor.from_tensor(x.view(-1, tokens, head), [1, rows, head]) for x in tensors]

    queries, keys, stages, warps = for_queries
    padded = triton.cdiv(tokens, queries) * queries
    lses, deltas = (torch.empty(batch * heads, padded, dtype=torch.float32, device=q.device) for _ in range(2))
    of_dq, of_q, of_out, of_dout = boxes(queries, dq, q, out, dout)
    of_k, of_v = boxes(keys, k, v)
    ragged = not causal and tokens % keys > 0
    gradient_of_queries[triton.cdiv(tokens, queries) * batch * heads,](
        of_dq, lses, deltas, of_q, of_k, of_v, of_out, lse, of_dout, tokens, padded, head**-0.5, group,
        causal, ragged, head, queries, keys, stages, num_warps=warps,
    )  # fmt: skip

    queries, keys, stages, warps = for_keys
    of_q, of_dout = boxes(queries, q, dout)
    of_dk, of_dv, of_k, of_v = boxes(keys, dk, dv, k, v)
    gradients_of_keys[triton.cdiv(tokens, keys) * batch * heads // group,](
        of_dk, of_dv, lses, deltas, of_q, of_k, of_v, of_dout, tokens, padded, head**-0.5, group,
        causal, head, queries, keys, stages, num_warps=warps,
    )  # fmt: skip
    return dq, dk, dv
