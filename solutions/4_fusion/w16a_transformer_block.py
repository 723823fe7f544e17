"""Transformer block: forward and backward with the phase's kernels.

transformer_block(x, residual, norm1, wqkv, wo, norm2, wgu, wdown, cos, sin, dout, ds, heads, kv_heads) performs one
training step of a pre-norm block:

    h = x + residual                        n = h * norm1 / sqrt(mean of h^2 over the row + 1e-6)
    q, k, v = n @ wqkv^T, q and k rotated   s = h + attention(q, k, v) @ wo^T
    m = s * norm2 / sqrt(mean of s^2 over the row + 1e-6)
    gate, up = m @ wgu^T                    out = (silu(gate) * up) @ wdown^T

It returns nine new tensors, which are out, s and the gradients of x, norm1, wqkv, wo, norm2, wgu and wdown. Each
gradient has the shape of its tensor. dout and ds are the gradients of out and s. The gradient of residual equals the
gradient of x.

All tensors except cos and sin are bfloat16 (float16 on GPUs older than sm_80, which lack bfloat16), are contiguous, and
start at a multiple of 16 bytes. x, residual, dout and ds have the shape (batch, tokens, width); norm1 and norm2
(width). Weights are (out, in): wqkv ((heads + 2 * kv_heads) * head, width), with the rows of all query heads first,
then the keys' rows, then the values' rows; wo (width, heads * head); wgu (2 * hidden, width), the gate first; wdown
(width, hidden). head is 32, 64 or 128, width and hidden are multiples of 16, and width is at most 8192. The batch and
the number of tokens may have any size, but each tensor has fewer than 2**31 elements. Attention is causal, with scores
q @ k^T / sqrt(head), and query head i reads key head i // (heads // kv_heads). cos and sin are float32 of shape
(tokens, head / 2): the pair (a, b) of the elements i and i + head / 2 of a query or key of token t becomes (a * cos - b
* sin, b * cos + a * sin) with cos[t, i] and sin[t, i].

The GEMMs are calls to torch.mm, some of them on transposed views. torch.mm runs the library's kernel on a GPU, and a
replacement kernel on the PTX machine. You write everything else. Reuse the kernels of the previous weeks, and adapt
them to the memory layout of this block's tensors. q, k and v are columns of one matrix, so you don't need to transpose
or copy anything. The grader checks the values against float64. On a GPU, it compares the time with the block
written as PyTorch operators, with autograd.

Operations: 6 for each parameter and token, 4.4e12 for 4 x 4096 tokens, a width of 2048, 16 query heads and 4 key heads
of 128, and hidden 5632; attention takes 0.96e12 with the mask. The other kernels move 2.9 GB, forward and backward,
0.70 ms at the 4.15 TB/s at which an H200 copies. The times there, in ms on the GPU:

                           GEMMs       attention    norms    gate    rotation
    this file              5.6         2.4          0.28     0.36    0.08
    torch.compile          5.6         1.9          0.28     0.50    0.11

So the GEMMs limit the step. The compiler is 3% faster, because it calls cuDNN's attention. With PyTorch's operators,
the step takes 1.25× as long. No two programs write to the same address, and sums over rows have a fixed order, so every
run gives the same bits. n, m and the gated product are kept for the backward pass; recomputing them would save a third
of the memory.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

EPS = 1e-6
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)

HEADS_AT_A_TIME = tl.constexpr(16)

# Queries, keys, warps and stages of the attention forward, by the size of a head.
FORWARD = {32: (32, 32, 4, 1), 64: (64, 128, 4, 2), 128: (64, 64, 4, 3)}
# Queries, keys, warps and stages of its two backward kernels.
FOR_QUERIES = {32: (32, 32, 4, 1), 64: (128, 64, 4, 3), 128: (128, 64, 8, 3)}
FOR_KEYS = {32: (32, 32, 4, 1), 64: (64, 64, 4, 3), 128: (32, 64, 4, 3)}


@triton.jit(do_not_specialize=["rows"])
def add_rmsnorm(y, h, rstd, x, residual, weight, rows, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute h = x + residual and y = h * rstd * weight, and store the row's rstd for the backward pass."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < columns)
    offs = row.to(tl.int64) * columns + cols
    s_row = tl.load(x + offs, mask=mask, other=0.0).to(tl.float32)
    s_row += tl.load(residual + offs, mask=mask, other=0.0).to(tl.float32)
    w_row = tl.load(weight + cols, mask=cols < columns, other=0.0).to(tl.float32)
    s_row = s_row.to(h.dtype.element_ty)
    tl.store(h + offs, s_row, mask=mask)
    s_row = s_row.to(tl.float32)
    rstd_row = tl.rsqrt(tl.sum(s_row * s_row, axis=1, keep_dims=True) / columns + eps)
    tl.store(rstd + row, rstd_row, mask=row < rows)
    tl.store(y + offs, (s_row * rstd_row * w_row).to(y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def rmsnorm_backward(dh, partial, dy, h, upstream, weight, rstd, rows, columns,
                     ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):  # fmt: skip
    """Compute dh = upstream + the gradient through the norm. A program sums dweight over all of its rows."""
    cols = tl.arange(0, BLOCK)[None, :]
    w_row = tl.load(weight + cols, mask=cols < columns, other=0.0).to(tl.float32)
    dweight = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)[:, None]
        mask = (row < rows) & (cols < columns)
        offs = row.to(tl.int64) * columns + cols
        rstd_row = tl.load(rstd + row, mask=row < rows, other=0.0)
        xhat = tl.load(h + offs, mask=mask, other=0.0).to(tl.float32) * rstd_row
        dy_row = tl.load(dy + offs, mask=mask, other=0.0).to(tl.float32)
        ds_row = tl.load(upstream + offs, mask=mask, other=0.0).to(tl.float32)
        wdy = dy_row * w_row
        c1 = tl.sum(wdy * xhat, axis=1, keep_dims=True) / columns
        tl.store(dh + offs, (ds_row + (wdy - xhat * c1) * rstd_row).to(dh.dtype.element_ty), mask=mask)
        dweight += dy_row * xhat
    ptrs = partial + tl.program_id(0) * columns + cols
    tl.store(ptrs, tl.sum(dweight, axis=0, keep_dims=True), mask=cols < columns)


@triton.jit(do_not_specialize=["stripes"])
def sum_stripes(out, partial, stripes, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum partial over its rows, in the same order in every run."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    acc = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(0, stripes, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        acc += tl.load(partial + row * columns + cols, mask=(row < stripes) & (cols < columns), other=0.0)
    tl.store(out + cols, tl.sum(acc, axis=0, keep_dims=True).to(out.dtype.element_ty), mask=cols < columns)


@triton.jit(do_not_specialize=["tokens", "rotary_heads", "all_heads"])
def rotate(qkv, cos, sin, tokens, rotary_heads, all_heads, sign, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Rotate the first `rotary_heads` heads of a token in place, by its angle, or back with sign = -1."""
    row = tl.program_id(0)
    pair = tl.arange(0, HALF)[None, :]
    angle = (row % tokens) * HALF + pair
    c = tl.load(cos + angle)
    s = tl.load(sin + angle) * sign
    head = tl.arange(0, HEADS)[:, None]
    ptrs = qkv + row.to(tl.int64) * all_heads * (2 * HALF) + head * (2 * HALF) + pair
    x1 = tl.load(ptrs, mask=head < rotary_heads, other=0.0).to(tl.float32)
    x2 = tl.load(ptrs + HALF, mask=head < rotary_heads, other=0.0).to(tl.float32)
    tl.store(ptrs, (x1 * c - x2 * s).to(qkv.dtype.element_ty), mask=head < rotary_heads)
    tl.store(ptrs + HALF, (x2 * c + x1 * s).to(qkv.dtype.element_ty), mask=head < rotary_heads)


@triton.jit
def attend(q, acc, l_i, m_i, qkv, sequence, k_offset, v_offset, lo, hi, offs_m, scale,
           BLOCK_N: tl.constexpr, HEAD: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Add the keys from lo to hi to the state of a block of queries. MASKED: not every query sees each key."""
    for start_n in tl.range(lo, hi, BLOCK_N):
        qk = tl.dot(q, qkv.load([sequence, start_n, k_offset]).reshape(BLOCK_N, HEAD).T)
        if MASKED:
            qk = tl.where(start_n + tl.arange(0, BLOCK_N)[None, :] <= offs_m[:, None], qk, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(qk, axis=1) * scale)
        p = tl.exp2(qk * scale - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        v = qkv.load([sequence, start_n, v_offset]).reshape(BLOCK_N, HEAD)
        acc = tl.dot(p.to(q.dtype), v, acc * alpha[:, None])
        m_i = m_new
    return acc, l_i, m_i


@triton.jit(do_not_specialize=["tokens", "heads", "kv_heads"])
def attention_forward(desc_o, lse, desc_q, desc_kv, tokens, heads, kv_heads, scale,
                      BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr):  # fmt: skip
    """Compute BLOCK_M queries of a head per program. q, k and v are columns of one matrix (batch, tokens, columns)."""
    blocks = tl.cdiv(tokens, BLOCK_M)
    head = tl.program_id(0) // blocks
    first = head // HEADS_AT_A_TIME * HEADS_AT_A_TIME  # a few heads at a time, so that their keys stay in L2
    width = tl.minimum(HEADS_AT_A_TIME, tl.num_programs(0) // blocks - first)
    turn = tl.program_id(0) - first * blocks
    head = first + turn % width
    start_m = (blocks - 1 - turn // width) * BLOCK_M  # blocks that see the most keys start first
    sequence, off_h = head // heads, head % heads
    k_offset = (heads + off_h // (heads // kv_heads)) * HEAD
    v_offset = k_offset + kv_heads * HEAD
    offs_m = start_m + tl.arange(0, BLOCK_M)
    q = desc_q.load([sequence, start_m, off_h * HEAD]).reshape(BLOCK_M, HEAD)
    acc = tl.zeros([BLOCK_M, HEAD], tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    whole = start_m // BLOCK_N * BLOCK_N  # every query sees every key before this one
    acc, l_i, m_i = attend(q, acc, l_i, m_i, desc_kv, sequence, k_offset, v_offset, 0, whole, offs_m, scale,
                           BLOCK_N, HEAD, False)  # fmt: skip
    acc, l_i, m_i = attend(q, acc, l_i, m_i, desc_kv, sequence, k_offset, v_offset, whole,
                           tl.minimum(start_m + BLOCK_M, tokens), offs_m, scale, BLOCK_N, HEAD, True)  # fmt: skip
    acc *= (1 / l_i)[:, None]
    desc_o.store([sequence, start_m, off_h * HEAD], acc.to(q.dtype).reshape(1, BLOCK_M, HEAD))
    tl.store(lse + head.to(tl.int64) * tokens + offs_m, m_i + tl.log2(l_i), mask=offs_m < tokens)


@triton.jit
def add_keys(dq, q, do, qkv, lse, delta, offs_m, sequence, k_offset, v_offset, lo, hi, qk_scale,
             MASKED: tl.constexpr, HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
             STAGES: tl.constexpr):  # fmt: skip
    """Add the contributions of the keys from lo to hi to dq of a block of queries."""
    for start_n in tl.range(lo, hi, BLOCK_N, num_stages=STAGES):
        k = qkv.load([sequence, start_n, k_offset]).reshape(BLOCK_N, HEAD)
        v = qkv.load([sequence, start_n, v_offset]).reshape(BLOCK_N, HEAD)
        qk = tl.dot(q, k.T)
        dp = tl.dot(do, v.T, tl.zeros([BLOCK_M, BLOCK_N], tl.float32) - delta[:, None])
        p = tl.exp2(qk * qk_scale - lse[:, None])
        if MASKED:
            p = tl.where((start_n + tl.arange(0, BLOCK_N))[None, :] <= offs_m[:, None], p, 0.0)
        dq = tl.dot((p * dp).to(k.dtype), k, dq)
    return dq


@triton.jit(do_not_specialize=["tokens", "padded", "heads", "kv_heads"])
def gradient_of_queries(dqkv, lses, deltas, desc_q, desc_kv, desc_o, lse, desc_do, tokens, padded, heads, kv_heads,
                        scale, HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                        STAGES: tl.constexpr):  # fmt: skip
    """Compute dq of BLOCK_M queries of a head, and lses and deltas, padded to blocks, for the other kernel."""
    blocks = tl.cdiv(tokens, BLOCK_M)
    head = tl.program_id(0) // blocks
    start_m = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_M
    sequence, off_h = head // heads, head % heads
    k_offset = (heads + off_h // (heads // kv_heads)) * HEAD
    v_offset = k_offset + kv_heads * HEAD
    q = desc_q.load([sequence, start_m, off_h * HEAD]).reshape(BLOCK_M, HEAD)
    do = desc_do.load([sequence, start_m, off_h * HEAD]).reshape(BLOCK_M, HEAD)
    o = desc_o.load([sequence, start_m, off_h * HEAD]).reshape(BLOCK_M, HEAD)
    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), axis=1)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    lse_i = tl.load(lse + head.to(tl.int64) * tokens + offs_m, mask=offs_m < tokens, other=float("inf"))
    tl.store(lses + head.to(tl.int64) * padded + offs_m, lse_i)  # infinite past the last query, so that p is 0 there
    tl.store(deltas + head.to(tl.int64) * padded + offs_m, delta)
    qk_scale = scale * LOG2_E
    dq = tl.zeros([BLOCK_M, HEAD], tl.float32)
    whole = start_m // BLOCK_N * BLOCK_N
    dq = add_keys(dq, q, do, desc_kv, lse_i, delta, offs_m, sequence, k_offset, v_offset, 0, whole, qk_scale,
                  False, HEAD, BLOCK_M, BLOCK_N, STAGES)  # fmt: skip
    dq = add_keys(dq, q, do, desc_kv, lse_i, delta, offs_m, sequence, k_offset, v_offset, whole,
                  tl.minimum(start_m + BLOCK_M, tokens), qk_scale, True, HEAD, BLOCK_M, BLOCK_N, STAGES)  # fmt: skip
    dqkv.store([sequence, start_m, off_h * HEAD], (dq * scale).to(q.dtype).reshape(1, BLOCK_M, HEAD))


@triton.jit
def add_queries(dk, dv, k, v, desc_q, desc_do, lses, deltas, offs_n, sequence, off_h, lo, hi, qk_scale,
                MASKED: tl.constexpr, HEAD: tl.constexpr, BLOCK_M: tl.constexpr, STAGES: tl.constexpr):  # fmt: skip
    """Add the contributions of the queries from lo to hi to dk and dv. Keys are the tiles' rows."""
    for start_m in tl.range(lo, hi, BLOCK_M, num_stages=STAGES):
        q = desc_q.load([sequence, start_m, off_h * HEAD]).reshape(BLOCK_M, HEAD)
        do = desc_do.load([sequence, start_m, off_h * HEAD]).reshape(BLOCK_M, HEAD)
        offs_m = start_m + tl.arange(0, BLOCK_M)
        lse = tl.load(lses + offs_m)
        delta = tl.load(deltas + offs_m)
        qkT = tl.dot(k, q.T)
        dpT = tl.dot(v, do.T)
        pT = tl.exp2(qkT * qk_scale - lse[None, :])
        if MASKED:
            pT = tl.where(offs_n[:, None] <= offs_m[None, :], pT, 0.0)
        dv = tl.dot(pT.to(q.dtype), do, dv)
        dk = tl.dot((pT * (dpT - delta[None, :])).to(q.dtype), q, dk)
    return dk, dv


@triton.jit(do_not_specialize=["tokens", "padded", "heads", "kv_heads"])
def gradients_of_keys(dqkv, lses, deltas, desc_q, desc_kv, desc_do, tokens, padded, heads, kv_heads, scale,
                      HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                      STAGES: tl.constexpr):  # fmt: skip
    """Compute dk and dv of BLOCK_N keys of a key head, summed over the query heads that read the key head."""
    blocks = tl.cdiv(tokens, BLOCK_N)
    kv_head = tl.program_id(0) // blocks
    start_n = tl.program_id(0) % blocks * BLOCK_N
    sequence, off_h_kv, group = kv_head // kv_heads, kv_head % kv_heads, heads // kv_heads
    k_offset = (heads + off_h_kv) * HEAD
    v_offset = k_offset + kv_heads * HEAD
    k = desc_kv.load([sequence, start_n, k_offset]).reshape(BLOCK_N, HEAD)
    v = desc_kv.load([sequence, start_n, v_offset]).reshape(BLOCK_N, HEAD)
    offs_n = start_n + tl.arange(0, BLOCK_N)
    dk = tl.zeros([BLOCK_N, HEAD], tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD], tl.float32)
    qk_scale = scale * LOG2_E
    for off_h in range(off_h_kv * group, off_h_kv * group + group):
        base = (sequence * heads + off_h).to(tl.int64) * padded
        start_m = start_n + tl.cdiv(BLOCK_N, BLOCK_M) * BLOCK_M
        dk, dv = add_queries(dk, dv, k, v, desc_q, desc_do, lses + base, deltas + base, offs_n, sequence, off_h,
                             start_n, tl.minimum(start_m, tokens), qk_scale, True, HEAD, BLOCK_M, STAGES)  # fmt: skip
        dk, dv = add_queries(dk, dv, k, v, desc_q, desc_do, lses + base, deltas + base, offs_n, sequence, off_h,
                             start_m, tokens, qk_scale, False, HEAD, BLOCK_M, STAGES)  # fmt: skip
    dqkv.store([sequence, start_n, k_offset], (dk * scale).to(k.dtype).reshape(1, BLOCK_N, HEAD))
    dqkv.store([sequence, start_n, v_offset], dv.to(k.dtype).reshape(1, BLOCK_N, HEAD))


@triton.jit
def swiglu(act, gate_up, hidden, BLOCK: tl.constexpr):
    """Compute act = silu(gate) * up, with one program for BLOCK columns of a row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ptrs = gate_up + row * (2 * hidden) + cols
    gate = tl.load(ptrs, mask=cols < hidden, other=0.0).to(tl.float32)
    up = tl.load(ptrs + hidden, mask=cols < hidden, other=0.0).to(tl.float32)
    tl.store(act + row * hidden + cols, (gate * tl.sigmoid(gate) * up).to(act.dtype.element_ty), mask=cols < hidden)


@triton.jit
def swiglu_backward(dgate_up, gate_up, dact, hidden, BLOCK: tl.constexpr):
    """Compute the gradients of gate and up."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offs = row * (2 * hidden) + cols
    gate = tl.load(gate_up + offs, mask=cols < hidden, other=0.0).to(tl.float32)
    up = tl.load(gate_up + offs + hidden, mask=cols < hidden, other=0.0).to(tl.float32)
    dact_row = tl.load(dact + row * hidden + cols, mask=cols < hidden, other=0.0).to(tl.float32)
    sig = tl.sigmoid(gate)
    silu = gate * sig
    dgate = dact_row * up * (sig + silu * (1 - sig))
    tl.store(dgate_up + offs, dgate.to(dgate_up.dtype.element_ty), mask=cols < hidden)
    tl.store(dgate_up + offs + hidden, (dact_row * silu).to(dgate_up.dtype.element_ty), mask=cols < hidden)


def norm_forward(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (y, h, rstd) for matrices (rows, width)."""
    rows, columns = x.shape
    y, h = torch.empty_like(x), torch.empty_like(x)
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(columns)
    rows_per_program = max(1, 2048 // block)
    warps = 4 if block <= 4096 else 16
    grid = (triton.cdiv(rows, rows_per_program),)
    add_rmsnorm[grid](y, h, rstd, x, residual, weight, rows, columns, EPS, rows_per_program, block, num_warps=warps)
    return y, h, rstd


def norm_backward(
    dy: torch.Tensor, h: torch.Tensor, upstream: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (dh, dweight). dh includes the gradient that bypasses the norm."""
    rows, columns = h.shape
    dh, dweight = torch.empty_like(h), torch.empty_like(weight)
    block = triton.next_power_of_2(columns)
    rows_per_program, warps = max(1, 2048 // block), max(4, block // 512)
    stripes = min(triton.cdiv(rows, rows_per_program), multiprocessors() * max(1, 16 // warps))
    partial = torch.empty(stripes, columns, dtype=torch.float32, device=h.device)
    rmsnorm_backward[stripes,](
        dh, partial, dy, h, upstream, weight, rstd, rows, columns, rows_per_program, block, 3, num_warps=warps
    )
    sum_stripes[triton.cdiv(columns, 64),](dweight, partial, stripes, columns, 32, 64)
    return dh, dweight


def turn(qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int, kv_heads: int, sign: float) -> None:
    """Rotate the queries and keys of qkv (batch, tokens, columns) in place."""
    batch, tokens, columns = qkv.shape
    rotary_heads, half = heads + kv_heads, cos.shape[1]
    rotate[batch * tokens,](
        qkv, cos, sin, tokens, rotary_heads, columns // (2 * half), sign, triton.next_power_of_2(rotary_heads), half
    )


def boxes(rows: int, head: int, *tensors: torch.Tensor) -> list[TensorDescriptor]:
    """Describe a head's columns of some tokens. Past the last token, loads return 0 and stores do nothing."""
    return [TensorDescriptor.from_tensor(x, [1, rows, head]) for x in tensors]


def attention(qkv: torch.Tensor, heads: int, kv_heads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mixed (batch, tokens, heads * head) and lse, the base-2 logarithm of each row's sum."""
    batch, tokens, columns = qkv.shape
    head = columns // (heads + 2 * kv_heads)
    mixed = qkv.new_empty(batch, tokens, heads * head)
    lse = torch.empty(batch * heads, tokens, dtype=torch.float32, device=qkv.device)
    block_m, block_n, warps, stages = FORWARD[head]
    desc_o, desc_q = boxes(block_m, head, mixed, qkv)
    attention_forward[batch * heads * triton.cdiv(tokens, block_m),](
        desc_o, lse, desc_q, *boxes(block_n, head, qkv), tokens, heads, kv_heads, head**-0.5 * LOG2_E.value,
        block_m, block_n, head, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return mixed, lse


def attention_backward(
    dmixed: torch.Tensor, qkv: torch.Tensor, mixed: torch.Tensor, lse: torch.Tensor, heads: int, kv_heads: int
) -> torch.Tensor:
    """Return the gradient of qkv, in qkv's layout."""
    batch, tokens, columns = qkv.shape
    head = columns // (heads + 2 * kv_heads)
    dqkv = torch.empty_like(qkv)
    block_m, block_n, warps, stages = FOR_QUERIES[head]
    padded = triton.cdiv(tokens, 128) * 128
    lses, deltas = (torch.empty(batch * heads, padded, dtype=torch.float32, device=qkv.device) for _ in range(2))
    desc_dqkv, desc_qkv, desc_o, desc_do = boxes(block_m, head, dqkv, qkv, mixed, dmixed)
    gradient_of_queries[triton.cdiv(tokens, block_m) * batch * heads,](
        desc_dqkv, lses, deltas, desc_qkv, *boxes(block_n, head, qkv), desc_o, lse, desc_do, tokens, padded, heads,
        kv_heads, head**-0.5, head, block_m, block_n, stages, num_warps=warps,
    )  # fmt: skip
    block_m, block_n, warps, stages = FOR_KEYS[head]
    desc_q, desc_do = boxes(block_m, head, qkv, dmixed)
    desc_dkv, desc_kv = boxes(block_n, head, dqkv, qkv)
    gradients_of_keys[triton.cdiv(tokens, block_n) * batch * kv_heads,](
        desc_dkv, lses, deltas, desc_q, desc_kv, desc_do, tokens, padded, heads, kv_heads, head**-0.5,
        head, block_m, block_n, stages, num_warps=warps,
    )  # fmt: skip
    return dqkv


def columns_of_swiglu(hidden: int) -> tuple[int, int]:
    block = min(1024, triton.next_power_of_2(hidden))
    return block, triton.cdiv(hidden, block)


def transformer_block(
    x: torch.Tensor,
    residual: torch.Tensor,
    norm1: torch.Tensor,
    wqkv: torch.Tensor,
    wo: torch.Tensor,
    norm2: torch.Tensor,
    wgu: torch.Tensor,
    wdown: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    dout: torch.Tensor,
    ds: torch.Tensor,
    heads: int,
    kv_heads: int,
) -> tuple[torch.Tensor, ...]:
    batch, tokens, width = x.shape
    rows, hidden = batch * tokens, wdown.shape[1]
    # forward
    n, h, rstd1 = norm_forward(x.view(rows, width), residual.view(rows, width), norm1)
    qkv = torch.mm(n, wqkv.t()).view(batch, tokens, -1)
    turn(qkv, cos, sin, heads, kv_heads, 1.0)
    mixed, lse = attention(qkv, heads, kv_heads)
    m, s, rstd2 = norm_forward(torch.mm(mixed.view(rows, -1), wo.t()), h, norm2)
    gate_up = torch.mm(m, wgu.t())
    act = gate_up.new_empty(rows, hidden)
    block, blocks = columns_of_swiglu(hidden)
    swiglu[rows, blocks](act, gate_up, hidden, block)
    out = torch.mm(act, wdown.t())
    # backward
    dout, ds = dout.view(rows, width), ds.view(rows, width)
    dact = torch.mm(dout, wdown)
    dwdown = torch.mm(dout.t(), act)
    dgate_up = torch.empty_like(gate_up)
    swiglu_backward[rows, blocks](dgate_up, gate_up, dact, hidden, block)
    dwgu = torch.mm(dgate_up.t(), m)
    ds, dnorm2 = norm_backward(torch.mm(dgate_up, wgu), s, ds, norm2, rstd2)
    dwo = torch.mm(ds.t(), mixed.view(rows, -1))
    dmixed = torch.mm(ds, wo).view(batch, tokens, -1)
    dqkv = attention_backward(dmixed, qkv, mixed, lse, heads, kv_heads)
    turn(dqkv, cos, sin, heads, kv_heads, -1.0)
    dqkv = dqkv.view(rows, -1)
    dwqkv = torch.mm(dqkv.t(), n)
    dx, dnorm1 = norm_backward(torch.mm(dqkv, wqkv), h, ds, norm1, rstd1)
    return out.view_as(x), s.view_as(x), dx.view_as(x), dnorm1, dwqkv, dwo, dnorm2, dwgu, dwdown


def multiprocessors() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
