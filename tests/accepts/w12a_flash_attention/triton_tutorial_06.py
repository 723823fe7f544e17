"""In the order of Triton's tutorial: blocks off the diagonal and on it by stages, base 2, and autotuning."""

import torch
import triton
import triton.language as tl


@triton.jit
def inner(acc, l_i, m_i, q, k_base, v_base, offs_m, offs_n, lo, hi, N_CTX, qk_scale,
          BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, ON_BAND: tl.constexpr, CAUSAL: tl.constexpr):  # fmt: skip
    offs_d = tl.arange(0, HEAD_DIM)
    for start_n in range(lo, hi, BLOCK_N):
        n = start_n + offs_n
        k = tl.load(k_base + n[None, :] * HEAD_DIM + offs_d[:, None], mask=n[None, :] < N_CTX, other=0.0)
        qk = tl.dot(q, k)
        if ON_BAND:
            seen = offs_m[:, None] >= n[None, :] if CAUSAL else n[None, :] < N_CTX
            qk = qk * qk_scale + tl.where(seen, 0, -1.0e30)
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        else:
            m_ij = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            qk = qk * qk_scale - m_ij[:, None]
        p = tl.math.exp2(qk)
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_base + n[:, None] * HEAD_DIM + offs_d[None, :], mask=n[:, None] < N_CTX, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_ij
    return acc, l_i, m_i


@triton.autotune(
    [triton.Config({"BLOCK_M": 64, "BLOCK_N": n}, num_stages=s, num_warps=4) for n in (32, 64) for s in (2, 3)],
    key=["N_CTX", "HEAD_DIM", "CAUSAL"],
)
@triton.jit
def forward(Q, K, V, M, Out, sm_scale, N_CTX, group, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
            BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    blocks = tl.cdiv(N_CTX, BLOCK_M)
    start_m = tl.program_id(0) % blocks
    off_hz = (tl.program_id(0) // blocks).to(tl.int64)
    kv_offset = off_hz // group * N_CTX * HEAD_DIM
    q_offset = off_hz * N_CTX * HEAD_DIM
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    place = offs_m[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    q = tl.load(Q + q_offset + place, mask=offs_m[:, None] < N_CTX, other=0.0)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    qk_scale = sm_scale * 1.44269504
    if CAUSAL:
        full, end = start_m * BLOCK_M, min((start_m + 1) * BLOCK_M, N_CTX)
    else:
        full, end = N_CTX // BLOCK_N * BLOCK_N, N_CTX
    acc, l_i, m_i = inner(acc, l_i, m_i, q, K + kv_offset, V + kv_offset, offs_m, offs_n, 0, full, N_CTX, qk_scale,
                          BLOCK_N, HEAD_DIM, False, CAUSAL)  # fmt: skip
    acc, l_i, m_i = inner(acc, l_i, m_i, q, K + kv_offset, V + kv_offset, offs_m, offs_n, full, end, N_CTX, qk_scale,
                          BLOCK_N, HEAD_DIM, True, CAUSAL)  # fmt: skip
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    tl.store(M + off_hz * N_CTX + offs_m, m_i * 0.6931471805599453, mask=offs_m < N_CTX)
    tl.store(Out + q_offset + place, acc.to(tl.bfloat16), mask=offs_m[:, None] < N_CTX)


def flash_attention(q, k, v, causal):
    Z, H, N_CTX, HEAD_DIM = q.shape
    o = torch.empty_like(q)
    M = torch.empty((Z, H, N_CTX), device=q.device, dtype=torch.float32)
    forward[lambda meta: (triton.cdiv(N_CTX, meta["BLOCK_M"]) * Z * H,)](
        q, k, v, M, o, HEAD_DIM**-0.5, N_CTX, H // k.shape[1], HEAD_DIM, causal
    )
    return o, M
