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

Operations: 6 for each parameter and token, 4.4e12 for 4 x 4096 tokens, width 2048, 16 heads, 4 of keys, of 128, and
hidden 5632; attention 0.96e12 with the mask. Bytes of the rest, forward and backward: 2.9 GB, 0.70 ms at the 4.15 TB/s
that an H200 copies with. The times there, in ms on the GPU:

                           products    attention    norms    gate    rotation
    this file              5.6         2.4          0.28     0.36    0.08
    torch.compile          5.6         1.9          0.28     0.50    0.11

So products bound the step. The compiler is 3% faster, because it calls cuDNN's attention. With PyTorch's operators,
the step takes 1.25× as long. No two programs write to the same place, and sums over rows have a fixed order: every run
gives the same bits. n, m and the gated product are kept; made again, they would save a third of the memory.
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
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    at = row.to(tl.int64) * columns + column
    total = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    total = total.to(h.dtype.element_ty)
    tl.store(h + at, total, mask=inside)
    total = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total, axis=1, keep_dims=True) / columns + eps)
    tl.store(rstd + row, scale, mask=row < rows)
    tl.store(y + at, (total * scale * gain).to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def rmsnorm_backward(dh, partial, dy, h, upstream, weight, rstd, rows, columns,
                     ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):  # fmt: skip
    """Compute dh = upstream + the gradient through the norm. A program sums dweight over all of its rows."""
    column = tl.arange(0, BLOCK)[None, :]
    gain = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    dweight = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (column < columns)
        at = row.to(tl.int64) * columns + column
        scale = tl.load(rstd + row, mask=row < rows, other=0.0)
        xhat = tl.load(h + at, mask=inside, other=0.0).to(tl.float32) * scale
        given = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        through = tl.load(upstream + at, mask=inside, other=0.0).to(tl.float32)
        g = given * gain
        along = tl.sum(g * xhat, axis=1, keep_dims=True) / columns
        tl.store(dh + at, (through + (g - xhat * along) * scale).to(dh.dtype.element_ty), mask=inside)
        dweight += given * xhat
    here = partial + tl.program_id(0) * columns + column
    tl.store(here, tl.sum(dweight, axis=0, keep_dims=True), mask=column < columns)


@triton.jit(do_not_specialize=["stripes"])
def sum_stripes(out, partial, stripes, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum partial over its rows, in the same order in every run."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(0, stripes, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        total += tl.load(partial + row * columns + column, mask=(row < stripes) & (column < columns), other=0.0)
    tl.store(out + column, tl.sum(total, axis=0, keep_dims=True).to(out.dtype.element_ty), mask=column < columns)


@triton.jit(do_not_specialize=["tokens", "turned", "all_heads"])
def rotate(qkv, cos, sin, tokens, turned, all_heads, sign, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Rotate the first `turned` heads of a token in place, by its angle, or back with sign = -1."""
    row = tl.program_id(0)
    pair = tl.arange(0, HALF)[None, :]
    angle = (row % tokens) * HALF + pair
    c = tl.load(cos + angle)
    s = tl.load(sin + angle) * sign
    head = tl.arange(0, HEADS)[:, None]
    at = qkv + row.to(tl.int64) * all_heads * (2 * HALF) + head * (2 * HALF) + pair
    left = tl.load(at, mask=head < turned, other=0.0).to(tl.float32)
    right = tl.load(at + HALF, mask=head < turned, other=0.0).to(tl.float32)
    tl.store(at, (left * c - right * s).to(qkv.dtype.element_ty), mask=head < turned)
    tl.store(at + HALF, (right * c + left * s).to(qkv.dtype.element_ty), mask=head < turned)


@triton.jit
def attend(query, out, total, top, qkv, sequence, of_key, of_value, first, last, row, scale,
           KEYS: tl.constexpr, HEAD: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Take the keys from first to last into the sums of a block of queries. MASKED: not every query sees each key."""
    for start in tl.range(first, last, KEYS):
        scores = tl.dot(query, qkv.load([sequence, start, of_key]).reshape(KEYS, HEAD).T)
        if MASKED:
            scores = tl.where(start + tl.arange(0, KEYS)[None, :] <= row[:, None], scores, -float("inf"))
        larger = tl.maximum(top, tl.max(scores, axis=1) * scale)
        share = tl.exp2(scores * scale - larger[:, None])
        shrink = tl.exp2(top - larger)
        total = total * shrink + tl.sum(share, axis=1)
        value = qkv.load([sequence, start, of_value]).reshape(KEYS, HEAD)
        out = tl.dot(share.to(query.dtype), value, out * shrink[:, None])
        top = larger
    return out, total, top


@triton.jit(do_not_specialize=["tokens", "heads", "kv_heads"])
def attention_forward(mixed, lse, of_queries, of_keys, tokens, heads, kv_heads, scale,
                      QUERIES: tl.constexpr, KEYS: tl.constexpr, HEAD: tl.constexpr):  # fmt: skip
    """Compute QUERIES queries of a head per program. q, k and v are columns of one matrix (batch, tokens, columns)."""
    blocks = tl.cdiv(tokens, QUERIES)
    head = tl.program_id(0) // blocks
    first = head // HEADS_AT_A_TIME * HEADS_AT_A_TIME  # of some heads at a time, whose keys stay in L2
    width = tl.minimum(HEADS_AT_A_TIME, tl.num_programs(0) // blocks - first)
    turn = tl.program_id(0) - first * blocks
    head = first + turn % width
    begin = (blocks - 1 - turn // width) * QUERIES  # those that see the most keys begin first
    sequence, own = head // heads, head % heads
    of_key = (heads + own // (heads // kv_heads)) * HEAD
    of_value = of_key + kv_heads * HEAD
    row = begin + tl.arange(0, QUERIES)
    query = of_queries.load([sequence, begin, own * HEAD]).reshape(QUERIES, HEAD)
    out = tl.zeros([QUERIES, HEAD], tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    top = tl.full([QUERIES], -float("inf"), tl.float32)
    whole = begin // KEYS * KEYS  # every query sees every key before this one
    out, total, top = attend(query, out, total, top, of_keys, sequence, of_key, of_value, 0, whole, row, scale,
                             KEYS, HEAD, False)  # fmt: skip
    out, total, top = attend(query, out, total, top, of_keys, sequence, of_key, of_value, whole,
                             tl.minimum(begin + QUERIES, tokens), row, scale, KEYS, HEAD, True)  # fmt: skip
    out *= (1 / total)[:, None]
    mixed.store([sequence, begin, own * HEAD], out.to(query.dtype).reshape(1, QUERIES, HEAD))
    tl.store(lse + head.to(tl.int64) * tokens + row, top + tl.log2(total), mask=row < tokens)


@triton.jit
def add_keys(dq, query, upper, qkv, lse, delta, row, sequence, of_key, of_value, low, high, fold,
             MASKED: tl.constexpr, HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
             STAGES: tl.constexpr):  # fmt: skip
    """Add the contributions of the keys from low to high to dq of a block of queries."""
    for begin in tl.range(low, high, KEYS, num_stages=STAGES):
        key = qkv.load([sequence, begin, of_key]).reshape(KEYS, HEAD)
        value = qkv.load([sequence, begin, of_value]).reshape(KEYS, HEAD)
        scores = tl.dot(query, key.T)
        dp = tl.dot(upper, value.T, tl.zeros([QUERIES, KEYS], tl.float32) - delta[:, None])
        p = tl.exp2(scores * fold - lse[:, None])
        if MASKED:
            p = tl.where((begin + tl.arange(0, KEYS))[None, :] <= row[:, None], p, 0.0)
        dq = tl.dot((p * dp).to(key.dtype), key, dq)
    return dq


@triton.jit(do_not_specialize=["tokens", "padded", "heads", "kv_heads"])
def gradient_of_queries(dqkv, lses, deltas, of_queries, of_keys, mixed, lse, dmixed, tokens, padded, heads, kv_heads,
                        scale, HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
                        STAGES: tl.constexpr):  # fmt: skip
    """Compute dq of QUERIES queries of a head, and lses and deltas, padded to blocks, for the other kernel."""
    blocks = tl.cdiv(tokens, QUERIES)
    head = tl.program_id(0) // blocks
    first = (blocks - 1 - tl.program_id(0) % blocks) * QUERIES
    sequence, own = head // heads, head % heads
    of_key = (heads + own // (heads // kv_heads)) * HEAD
    of_value = of_key + kv_heads * HEAD
    query = of_queries.load([sequence, first, own * HEAD]).reshape(QUERIES, HEAD)
    upper = dmixed.load([sequence, first, own * HEAD]).reshape(QUERIES, HEAD)
    result = mixed.load([sequence, first, own * HEAD]).reshape(QUERIES, HEAD)
    delta = tl.sum(upper.to(tl.float32) * result.to(tl.float32), axis=1)
    row = first + tl.arange(0, QUERIES)
    kept = tl.load(lse + head.to(tl.int64) * tokens + row, mask=row < tokens, other=float("inf"))
    tl.store(lses + head.to(tl.int64) * padded + row, kept)  # infinite past the last query, so that p is 0 there
    tl.store(deltas + head.to(tl.int64) * padded + row, delta)
    fold = scale * LOG2_E
    total = tl.zeros([QUERIES, HEAD], tl.float32)
    whole = first // KEYS * KEYS
    total = add_keys(total, query, upper, of_keys, kept, delta, row, sequence, of_key, of_value, 0, whole, fold,
                     False, HEAD, QUERIES, KEYS, STAGES)  # fmt: skip
    total = add_keys(total, query, upper, of_keys, kept, delta, row, sequence, of_key, of_value, whole,
                     tl.minimum(first + QUERIES, tokens), fold, True, HEAD, QUERIES, KEYS, STAGES)  # fmt: skip
    dqkv.store([sequence, first, own * HEAD], (total * scale).to(query.dtype).reshape(1, QUERIES, HEAD))


@triton.jit
def add_queries(dk, dv, key, value, of_queries, dmixed, lses, deltas, at, sequence, own, low, high, fold,
                MASKED: tl.constexpr, HEAD: tl.constexpr, QUERIES: tl.constexpr, STAGES: tl.constexpr):  # fmt: skip
    """Add the contributions of the queries from low to high to dk and dv. Keys are the tiles' rows."""
    for begin in tl.range(low, high, QUERIES, num_stages=STAGES):
        query = of_queries.load([sequence, begin, own * HEAD]).reshape(QUERIES, HEAD)
        upper = dmixed.load([sequence, begin, own * HEAD]).reshape(QUERIES, HEAD)
        column = begin + tl.arange(0, QUERIES)
        lse = tl.load(lses + column)
        delta = tl.load(deltas + column)
        scores = tl.dot(key, query.T)
        dp = tl.dot(value, upper.T)
        p = tl.exp2(scores * fold - lse[None, :])
        if MASKED:
            p = tl.where(at[:, None] <= column[None, :], p, 0.0)
        dv = tl.dot(p.to(query.dtype), upper, dv)
        dk = tl.dot((p * (dp - delta[None, :])).to(query.dtype), query, dk)
    return dk, dv


@triton.jit(do_not_specialize=["tokens", "padded", "heads", "kv_heads"])
def gradients_of_keys(dqkv, lses, deltas, of_queries, of_keys, dmixed, tokens, padded, heads, kv_heads, scale,
                      HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
                      STAGES: tl.constexpr):  # fmt: skip
    """Compute dk and dv of KEYS keys of a key head, summed over the query heads that read the key head."""
    blocks = tl.cdiv(tokens, KEYS)
    kv_head = tl.program_id(0) // blocks
    first = tl.program_id(0) % blocks * KEYS
    sequence, shared, group = kv_head // kv_heads, kv_head % kv_heads, heads // kv_heads
    of_key = (heads + shared) * HEAD
    of_value = of_key + kv_heads * HEAD
    key = of_keys.load([sequence, first, of_key]).reshape(KEYS, HEAD)
    value = of_keys.load([sequence, first, of_value]).reshape(KEYS, HEAD)
    at = first + tl.arange(0, KEYS)
    dk = tl.zeros([KEYS, HEAD], tl.float32)
    dv = tl.zeros([KEYS, HEAD], tl.float32)
    fold = scale * LOG2_E
    for own in range(shared * group, shared * group + group):
        line = (sequence * heads + own).to(tl.int64) * padded
        begin = first + tl.cdiv(KEYS, QUERIES) * QUERIES
        dk, dv = add_queries(dk, dv, key, value, of_queries, dmixed, lses + line, deltas + line, at, sequence, own,
                             first, tl.minimum(begin, tokens), fold, True, HEAD, QUERIES, STAGES)  # fmt: skip
        dk, dv = add_queries(dk, dv, key, value, of_queries, dmixed, lses + line, deltas + line, at, sequence, own,
                             begin, tokens, fold, False, HEAD, QUERIES, STAGES)  # fmt: skip
    dqkv.store([sequence, first, of_key], (dk * scale).to(key.dtype).reshape(1, KEYS, HEAD))
    dqkv.store([sequence, first, of_value], dv.to(key.dtype).reshape(1, KEYS, HEAD))


@triton.jit
def swiglu(act, gate_up, hidden, BLOCK: tl.constexpr):
    """Compute act = silu(gate) * up, with one program for BLOCK columns of a row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = gate_up + row * (2 * hidden) + column
    gate = tl.load(at, mask=column < hidden, other=0.0).to(tl.float32)
    up = tl.load(at + hidden, mask=column < hidden, other=0.0).to(tl.float32)
    tl.store(act + row * hidden + column, (gate * tl.sigmoid(gate) * up).to(act.dtype.element_ty), mask=column < hidden)


@triton.jit
def swiglu_backward(dgate_up, gate_up, dact, hidden, BLOCK: tl.constexpr):
    """Compute the gradients of gate and up."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = row * (2 * hidden) + column
    gate = tl.load(gate_up + at, mask=column < hidden, other=0.0).to(tl.float32)
    up = tl.load(gate_up + at + hidden, mask=column < hidden, other=0.0).to(tl.float32)
    given = tl.load(dact + row * hidden + column, mask=column < hidden, other=0.0).to(tl.float32)
    share = tl.sigmoid(gate)
    silu = gate * share
    dgate = given * up * (share + silu * (1 - share))
    tl.store(dgate_up + at, dgate.to(dgate_up.dtype.element_ty), mask=column < hidden)
    tl.store(dgate_up + at + hidden, (given * silu).to(dgate_up.dtype.element_ty), mask=column < hidden)


def norm_forward(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (y, h, rstd) for matrices (rows, width)."""
    rows, columns = x.shape
    y, h = torch.empty_like(x), torch.empty_like(x)
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(columns)
    rows_each = max(1, 2048 // block)
    warps = 4 if block <= 4096 else 16
    grid = (triton.cdiv(rows, rows_each),)
    add_rmsnorm[grid](y, h, rstd, x, residual, weight, rows, columns, EPS, rows_each, block, num_warps=warps)
    return y, h, rstd


def norm_backward(
    dy: torch.Tensor, h: torch.Tensor, upstream: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (dh, dweight). dh includes the gradient that bypasses the norm."""
    rows, columns = h.shape
    dh, dweight = torch.empty_like(h), torch.empty_like(weight)
    block = triton.next_power_of_2(columns)
    rows_each, warps = max(1, 2048 // block), max(4, block // 512)
    stripes = min(triton.cdiv(rows, rows_each), multiprocessors() * max(1, 16 // warps))
    partial = torch.empty(stripes, columns, dtype=torch.float32, device=h.device)
    rmsnorm_backward[stripes,](
        dh, partial, dy, h, upstream, weight, rstd, rows, columns, rows_each, block, 3, num_warps=warps
    )
    sum_stripes[triton.cdiv(columns, 64),](dweight, partial, stripes, columns, 32, 64)
    return dh, dweight


def turn(qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int, kv_heads: int, sign: float) -> None:
    """Rotate the queries and keys of qkv (batch, tokens, columns) in place."""
    batch, tokens, columns = qkv.shape
    turned, half = heads + kv_heads, cos.shape[1]
    rotate[batch * tokens,](
        qkv, cos, sin, tokens, turned, columns // (2 * half), sign, triton.next_power_of_2(turned), half
    )


def boxes(rows: int, head: int, *tensors: torch.Tensor) -> list[TensorDescriptor]:
    """Describe a head's columns of some tokens. Past the last token, loads return 0 and stores do nothing."""
    return [TensorDescriptor.from_tensor(one, [1, rows, head]) for one in tensors]


def attention(qkv: torch.Tensor, heads: int, kv_heads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mixed (batch, tokens, heads * head) and lse, the base-2 logarithm of each row's sum."""
    batch, tokens, columns = qkv.shape
    head = columns // (heads + 2 * kv_heads)
    mixed = qkv.new_empty(batch, tokens, heads * head)
    lse = torch.empty(batch * heads, tokens, dtype=torch.float32, device=qkv.device)
    queries, keys, warps, stages = FORWARD[head]
    of_mixed, of_queries = boxes(queries, head, mixed, qkv)
    attention_forward[batch * heads * triton.cdiv(tokens, queries),](
        of_mixed, lse, of_queries, *boxes(keys, head, qkv), tokens, heads, kv_heads, head**-0.5 * LOG2_E.value,
        queries, keys, head, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return mixed, lse


def attention_backward(
    dmixed: torch.Tensor, qkv: torch.Tensor, mixed: torch.Tensor, lse: torch.Tensor, heads: int, kv_heads: int
) -> torch.Tensor:
    """Return the gradient of qkv, in qkv's layout."""
    batch, tokens, columns = qkv.shape
    head = columns // (heads + 2 * kv_heads)
    dqkv = torch.empty_like(qkv)
    queries, keys, warps, stages = FOR_QUERIES[head]
    padded = triton.cdiv(tokens, 128) * 128
    lses, deltas = (torch.empty(batch * heads, padded, dtype=torch.float32, device=qkv.device) for _ in range(2))
    of_dqkv, of_qkv, of_mixed, of_dmixed = boxes(queries, head, dqkv, qkv, mixed, dmixed)
    gradient_of_queries[triton.cdiv(tokens, queries) * batch * heads,](
        of_dqkv, lses, deltas, of_qkv, *boxes(keys, head, qkv), of_mixed, lse, of_dmixed, tokens, padded, heads,
        kv_heads, head**-0.5, head, queries, keys, stages, num_warps=warps,
    )  # fmt: skip
    queries, keys, warps, stages = FOR_KEYS[head]
    of_queries, of_dmixed = boxes(queries, head, qkv, dmixed)
    of_dkv, of_keys = boxes(keys, head, dqkv, qkv)
    gradients_of_keys[triton.cdiv(tokens, keys) * batch * kv_heads,](
        of_dkv, lses, deltas, of_queries, of_keys, of_dmixed, tokens, padded, heads, kv_heads, head**-0.5,
        head, queries, keys, stages, num_warps=warps,
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
