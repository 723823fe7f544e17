"""Triton's tutorial on fused attention: each program makes dk and dv of its keys, then dq of as many queries."""

import torch
import triton
import triton.language as tl


@triton.jit
def _attn_bwd_preprocess(O, DO, Delta, N_CTX, BLOCK_M: tl.constexpr, HEAD_DIM: tl.constexpr):
    off_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    off_hz = tl.program_id(1).to(tl.int64)
    off_n = tl.arange(0, HEAD_DIM)
    at = off_hz * HEAD_DIM * N_CTX + off_m[:, None] * HEAD_DIM + off_n[None, :]
    inside = off_m[:, None] < N_CTX
    o = tl.load(O + at, mask=inside, other=0.0)
    do = tl.load(DO + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(Delta + off_hz * N_CTX + off_m, tl.sum(o * do, axis=1), mask=off_m < N_CTX)


@triton.jit
def _attn_bwd_dkdv(dk, dv, Q, k, v, qk_scale, DO, M, D, N_CTX, offs_n, start_m, CAUSAL, BLOCK: tl.constexpr,
                   HEAD_DIM: tl.constexpr):  # fmt: skip
    offs_k = tl.arange(0, HEAD_DIM)
    for curr_m in range(start_m, N_CTX, BLOCK):
        offs_m = curr_m + tl.arange(0, BLOCK)
        at = offs_m[:, None] * HEAD_DIM + offs_k[None, :]
        q = tl.load(Q + at, mask=offs_m[:, None] < N_CTX, other=0.0)
        do = tl.load(DO + at, mask=offs_m[:, None] < N_CTX, other=0.0)
        m = tl.load(M + offs_m, mask=offs_m < N_CTX, other=float("inf")) * 1.4426950408889634
        Di = tl.load(D + offs_m, mask=offs_m < N_CTX, other=0.0)
        pT = tl.math.exp2(tl.dot(k, tl.trans(q)) * qk_scale - m[None, :])
        keep = (offs_n[:, None] < N_CTX) & ((offs_m[None, :] >= offs_n[:, None]) | (CAUSAL == 0))
        pT = tl.where(keep, pT, 0.0)
        dv += tl.dot(pT.to(tl.bfloat16), do)
        dsT = pT * (tl.dot(v, tl.trans(do)).to(tl.float32) - Di[None, :])
        dk += tl.dot(dsT.to(tl.bfloat16), q)
    return dk, dv


@triton.jit
def _attn_bwd_dq(dq, q, K, V, qk_scale, do, m, Di, N_CTX, offs_m, end_n, CAUSAL, BLOCK: tl.constexpr,
                 HEAD_DIM: tl.constexpr):  # fmt: skip
    offs_k = tl.arange(0, HEAD_DIM)
    for curr_n in range(0, end_n, BLOCK):
        offs_n = curr_n + tl.arange(0, BLOCK)
        at = offs_n[None, :] * HEAD_DIM + offs_k[:, None]
        kT = tl.load(K + at, mask=offs_n[None, :] < N_CTX, other=0.0)
        vT = tl.load(V + at, mask=offs_n[None, :] < N_CTX, other=0.0)
        p = tl.math.exp2(tl.dot(q, kT) * qk_scale - m)
        keep = (offs_n[None, :] < N_CTX) & ((offs_m[:, None] >= offs_n[None, :]) | (CAUSAL == 0))
        ds = tl.where(keep, p, 0.0) * (tl.dot(do, vT).to(tl.float32) - Di[:, None])
        dq += tl.dot(ds.to(tl.bfloat16), tl.trans(kT))
    return dq


@triton.jit(do_not_specialize=["N_CTX", "CAUSAL"])
def _attn_bwd(Q, K, V, sm_scale, DO, DQ, DK, DV, M, D, GROUP, N_CTX, CAUSAL, BLOCK: tl.constexpr,
              HEAD_DIM: tl.constexpr):  # fmt: skip
    pid, kvhead = tl.program_id(0), tl.program_id(1).to(tl.int64)
    plane = N_CTX.to(tl.int64) * HEAD_DIM
    qk_scale = sm_scale * 1.4426950408889634
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    at = offs[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    inside = offs[:, None] < N_CTX
    k = tl.load(K + kvhead * plane + at, mask=inside, other=0.0)
    v = tl.load(V + kvhead * plane + at, mask=inside, other=0.0)
    dk = tl.zeros([BLOCK, HEAD_DIM], dtype=tl.float32)
    dv = tl.zeros([BLOCK, HEAD_DIM], dtype=tl.float32)
    for g in range(GROUP):
        bhid = kvhead * GROUP + g
        dk, dv = _attn_bwd_dkdv(dk, dv, Q + bhid * plane, k, v, qk_scale, DO + bhid * plane, M + bhid * N_CTX,
                                D + bhid * N_CTX, N_CTX, offs, pid * BLOCK * CAUSAL, CAUSAL, BLOCK,
                                HEAD_DIM)  # fmt: skip
    tl.store(DV + kvhead * plane + at, dv.to(tl.bfloat16), mask=inside)
    tl.store(DK + kvhead * plane + at, (dk * sm_scale).to(tl.bfloat16), mask=inside)
    for g in range(GROUP):
        bhid = kvhead * GROUP + g
        q = tl.load(Q + bhid * plane + at, mask=inside, other=0.0)
        do = tl.load(DO + bhid * plane + at, mask=inside, other=0.0)
        m = tl.load(M + bhid * N_CTX + offs, mask=offs < N_CTX, other=0.0)[:, None] * 1.4426950408889634
        Di = tl.load(D + bhid * N_CTX + offs, mask=offs < N_CTX, other=0.0)
        dq = tl.zeros([BLOCK, HEAD_DIM], dtype=tl.float32)
        end_n = tl.where(CAUSAL == 1, tl.minimum(pid * BLOCK + BLOCK, N_CTX), N_CTX)
        dq = _attn_bwd_dq(dq, q, K + kvhead * plane, V + kvhead * plane, qk_scale, do, m, Di, N_CTX, offs, end_n,
                          CAUSAL, BLOCK, HEAD_DIM)  # fmt: skip
        tl.store(DQ + bhid * plane + at, (dq * sm_scale).to(tl.bfloat16), mask=inside)


def flash_attention_backward(q, k, v, o, lse, do, causal):
    BATCH, N_HEAD, N_CTX, HEAD_DIM = q.shape
    kv_heads = k.shape[1]
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    delta = torch.empty_like(lse)
    blocks = triton.cdiv(N_CTX, 32)
    # the y axis of a grid ends at 65,535: some of the planes at a time
    for first in range(0, BATCH, max(1, 65_535 // N_HEAD)):
        part = slice(first, first + max(1, 65_535 // N_HEAD))
        count = len(q[part])
        _attn_bwd_preprocess[(blocks, count * N_HEAD)](o[part], do[part], delta[part], N_CTX, 32, HEAD_DIM)
        _attn_bwd[(blocks, count * kv_heads)](
            q[part], k[part], v[part], HEAD_DIM**-0.5, do[part], dq[part], dk[part], dv[part], lse[part], delta[part],
            N_HEAD // kv_heads, N_CTX, int(causal), 32, HEAD_DIM, num_warps=4,
        )  # fmt: skip
    return dq, dk, dv
