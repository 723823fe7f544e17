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

The grader enforces these limits on the largest case (batch=1 heads=4 kv_heads=2 tokens=200 head=64 causal=False
dtype=bfloat16); smaller cases get some slack for partial tiles. Each load or store may touch at most 2.1 times the
sectors that its bytes require. Any workspace may be at most 0.4 times the size of the inputs and outputs. The
multiply-adds must run on tensor cores.

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
    dq, q, do, desc_k, desc_v, lse2, delta, offs_m, lo, hi, tokens, qk_scale, kv_head, MASKED: tl.constexpr,
    CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add the contribution of the keys from lo to hi to dq of a block of queries. MASKED: some keys are hidden."""
    for start_n in tl.range(lo, hi, BLOCK_N, num_stages=STAGES):
        k = desc_k.load([kv_head, start_n, 0]).reshape([BLOCK_N, HEAD_DIM])
        v = desc_v.load([kv_head, start_n, 0]).reshape([BLOCK_N, HEAD_DIM])
        qk = tl.dot(q, k.T)
        dp = tl.dot(do, v.T, tl.zeros([BLOCK_M, BLOCK_N], tl.float32) - delta[:, None])  # starts at -delta
        p = tl.exp2(qk * qk_scale - lse2[:, None])
        if MASKED:
            offs_n = (start_n + tl.arange(0, BLOCK_N))[None, :]
            p = tl.where(offs_n <= offs_m[:, None] if CAUSAL else offs_n < tokens, p, 0.0)
        dq = tl.dot((p * dp).to(k.dtype), k, dq)
    return dq


@triton.jit(do_not_specialize=["tokens", "group"])
def gradient_of_queries(
    desc_dq, lses, deltas, desc_q, k, v, desc_o, lse, desc_do, tokens, padded, scale, group, CAUSAL: tl.constexpr,
    RAGGED: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute dq for BLOCK_M queries of a head, and lses and deltas for the other kernel, padded to whole blocks.

    RAGGED: the last block of keys is not full.
    """
    blocks = tl.cdiv(tokens, BLOCK_M)
    head = tl.program_id(0) // blocks
    start_m = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_M  # blocks that see the most keys start first
    q = desc_q.load([head, start_m, 0]).reshape([BLOCK_M, HEAD_DIM])
    do = desc_do.load([head, start_m, 0]).reshape([BLOCK_M, HEAD_DIM])
    o = desc_o.load([head, start_m, 0]).reshape([BLOCK_M, HEAD_DIM])
    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), axis=1)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    lse2 = tl.load(lse + head.to(tl.int64) * tokens + offs_m, mask=offs_m < tokens, other=float("inf")) * LOG2_E
    tl.store(lses + head.to(tl.int64) * padded + offs_m, lse2)  # infinite past the last query, so that p is 0 there
    tl.store(deltas + head.to(tl.int64) * padded + offs_m, delta)
    qk_scale = scale * LOG2_E
    dq = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    seen_by_all = start_m // BLOCK_N * BLOCK_N if CAUSAL else tokens
    dq = add_keys(dq, q, do, k, v, lse2, delta, offs_m, 0, seen_by_all, tokens, qk_scale, head // group,
                  RAGGED, CAUSAL, HEAD_DIM, BLOCK_M, BLOCK_N, STAGES)  # fmt: skip
    if CAUSAL:
        hi = tl.minimum(start_m + BLOCK_M, tokens)
        dq = add_keys(dq, q, do, k, v, lse2, delta, offs_m, seen_by_all, hi, tokens, qk_scale, head // group,
                      True, CAUSAL, HEAD_DIM, BLOCK_M, BLOCK_N, STAGES)  # fmt: skip
    desc_dq.store([head, start_m, 0], (dq * scale).to(q.dtype).reshape([1, BLOCK_M, HEAD_DIM]))


@triton.jit
def add_queries(
    dk, dv, k, v, desc_q, desc_do, lses, deltas, offs_n, lo, hi, qk_scale, head, CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add the contribution of the queries from lo to hi to dk and dv of a block of keys.

    Here keys are the rows of the tiles. One GEMM leaves pT and dsT in the registers from which the next reads its left
    operand, so they never go through shared memory.
    """
    for start_m in tl.range(lo, hi, BLOCK_M, num_stages=STAGES):
        q = desc_q.load([head, start_m, 0]).reshape([BLOCK_M, HEAD_DIM])
        do = desc_do.load([head, start_m, 0]).reshape([BLOCK_M, HEAD_DIM])
        offs_m = start_m + tl.arange(0, BLOCK_M)
        lse2 = tl.load(lses + offs_m)
        delta = tl.load(deltas + offs_m)
        qkT = tl.dot(k, q.T)
        dpT = tl.dot(v, do.T, tl.zeros(qkT.shape, tl.float32) - delta[None, :])  # starts at -delta
        pT = tl.exp2(qkT * qk_scale - lse2[None, :])
        if CAUSAL:  # in every tile: a second loop without the mask costs registers, and ptxas would spill some
            pT = tl.where(offs_n[:, None] <= offs_m[None, :], pT, 0.0)
        dv = tl.dot(pT.to(q.dtype), do, dv)
        dsT = pT * dpT
        dk = tl.dot(dsT.to(q.dtype), q, dk)
    return dk, dv


@triton.jit(do_not_specialize=["tokens", "group"])
def gradients_of_keys(
    desc_dk, desc_dv, lses, deltas, desc_q, desc_k, desc_v, desc_do, tokens, padded, scale, group, CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv for BLOCK_N keys of a key head, summed over the query heads that read it.

    Keys past the last key need no mask: they are separate rows in every GEMM, and these rows are not stored.
    """
    blocks = tl.cdiv(tokens, BLOCK_N)
    kv_head = tl.program_id(0) // blocks
    start_n = tl.program_id(0) % blocks * BLOCK_N
    k = desc_k.load([kv_head, start_n, 0]).reshape([BLOCK_N, HEAD_DIM])
    v = desc_v.load([kv_head, start_n, 0]).reshape([BLOCK_N, HEAD_DIM])
    offs_n = start_n + tl.arange(0, BLOCK_N)
    dk = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    qk_scale = scale * LOG2_E
    for head in range(kv_head * group, kv_head * group + group):
        lse_head, delta_head = lses + head.to(tl.int64) * padded, deltas + head.to(tl.int64) * padded
        start_m = start_n if CAUSAL else 0
        dk, dv = add_queries(dk, dv, k, v, desc_q, desc_do, lse_head, delta_head, offs_n, start_m, tokens, qk_scale,
                             head, CAUSAL, HEAD_DIM, BLOCK_M, BLOCK_N, STAGES)  # fmt: skip
    desc_dk.store([kv_head, start_n, 0], (dk * scale).to(k.dtype).reshape([1, BLOCK_N, HEAD_DIM]))
    desc_dv.store([kv_head, start_n, 0], dv.to(k.dtype).reshape([1, BLOCK_N, HEAD_DIM]))


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

    block_m, block_n, stages, warps = for_queries
    padded = triton.cdiv(tokens, block_m) * block_m
    lses, deltas = (torch.empty(batch * heads, padded, dtype=torch.float32, device=q.device) for _ in range(2))
    desc_dq, desc_q, desc_o, desc_do = boxes(block_m, dq, q, out, dout)
    desc_k, desc_v = boxes(block_n, k, v)
    ragged = not causal and tokens % block_n > 0
    gradient_of_queries[triton.cdiv(tokens, block_m) * batch * heads,](
        desc_dq, lses, deltas, desc_q, desc_k, desc_v, desc_o, lse, desc_do, tokens, padded, head**-0.5, group,
        causal, ragged, head, block_m, block_n, stages, num_warps=warps,
    )  # fmt: skip

    block_m, block_n, stages, warps = for_keys
    desc_q, desc_do = boxes(block_m, q, dout)
    desc_dk, desc_dv, desc_k, desc_v = boxes(block_n, dk, dv, k, v)
    gradients_of_keys[triton.cdiv(tokens, block_n) * batch * heads // group,](
        desc_dk, desc_dv, lses, deltas, desc_q, desc_k, desc_v, desc_do, tokens, padded, head**-0.5, group,
        causal, head, block_m, block_n, stages, num_warps=warps,
    )  # fmt: skip
    return dq, dk, dv
