"""Buffers used again, as Unsloth does it: gradients over gates, products into a tensor that is there (out=)."""

import torch
import triton
import triton.language as tl

TILES = {32: (32, 32, 4), 64: (64, 64, 4), 128: (128, 64, 8)}
"""Queries, keys and warps of a program that owns queries, by the size of a head."""
OF_KEYS = {32: (32, 32, 4), 64: (64, 64, 4), 128: (32, 64, 4)}
"""The same of one that owns keys."""


@triton.jit
def norm_kernel(y, h, x, residual, weight, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    total = tl.load(x + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    total += tl.load(residual + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    total = total.to(tl.bfloat16)
    tl.store(h + row * columns + column, total, mask=mask)
    total = total.to(tl.float32)
    rstd = 1 / tl.sqrt(tl.sum(total * total, axis=0) / columns + 1e-6)
    gain = tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * columns + column, (total * rstd * gain).to(tl.bfloat16), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def norm_backward_kernel(dh, dweight, dy, h, upstream, weight, rows, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    gain = tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * columns + column
        value = tl.load(h + at, mask=mask, other=0.0).to(tl.float32)
        given = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        rstd = 1 / tl.sqrt(tl.sum(value * value, axis=0) / columns + 1e-6)
        xhat = value * rstd
        g = given * gain
        through = (g - xhat * (tl.sum(g * xhat, axis=0) / columns)) * rstd
        past = tl.load(upstream + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(dh + at, (through + past).to(tl.bfloat16), mask=mask)
        total += given * xhat
    tl.atomic_add(dweight + column, total, mask=mask)


@triton.jit
def cast_kernel(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n).to(tl.bfloat16), mask=at < n)


@triton.jit(do_not_specialize=["tokens", "columns"])
def rope_kernel(qkv, cos, sin, tokens, columns, sign, HALF: tl.constexpr):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    pair = tl.arange(0, HALF)
    c = tl.load(cos + row % tokens * HALF + pair)
    s = tl.load(sin + row % tokens * HALF + pair) * sign
    at = qkv + row * columns + head * 2 * HALF + pair
    a, b = tl.load(at).to(tl.float32), tl.load(at + HALF).to(tl.float32)
    tl.store(at, (a * c - b * s).to(tl.bfloat16))
    tl.store(at + HALF, (b * c + a * s).to(tl.bfloat16))


@triton.jit(do_not_specialize=["tokens", "heads", "kv_heads"])
def attention_kernel(
    out, lse, qkv, tokens, heads, kv_heads, scale, HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr
):
    batch, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    stride = (heads + 2 * kv_heads) * HEAD
    base = qkv + batch.to(tl.int64) * tokens * stride
    first = (tl.num_programs(1) - 1 - tl.program_id(1)) * QUERIES
    query, column = first + tl.arange(0, QUERIES), tl.arange(0, HEAD)[None, :]
    inside = (query < tokens)[:, None]
    kv = heads + head // (heads // kv_heads)
    q = tl.load(base + query[:, None] * stride + head * HEAD + column, mask=inside, other=0.0)
    top = tl.full([QUERIES], -float("inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    result = tl.zeros([QUERIES, HEAD], tl.float32)
    for begin in range(0, tl.minimum(first + QUERIES, tokens), KEYS):
        key = begin + tl.arange(0, KEYS)
        place = base + key[:, None] * stride + kv * HEAD + column
        k = tl.load(place, mask=(key < tokens)[:, None], other=0.0)
        v = tl.load(place + kv_heads * HEAD, mask=(key < tokens)[:, None], other=0.0)
        scores = tl.where(key[None, :] <= query[:, None], tl.dot(q, k.T) * scale, -float("inf"))
        larger = tl.maximum(top, tl.max(scores, axis=1))
        p = tl.exp(scores - larger[:, None])
        shrink = tl.exp(top - larger)
        total = total * shrink + tl.sum(p, axis=1)
        result = tl.dot(p.to(tl.bfloat16), v, result * shrink[:, None])
        top = larger
    row = batch.to(tl.int64) * tokens + query
    tl.store(
        out + row[:, None] * heads * HEAD + head * HEAD + column, (result / total[:, None]).to(tl.bfloat16), inside
    )
    tl.store(lse + tl.program_id(0) * tokens + query, top + tl.log(total), mask=query < tokens)


@triton.jit(do_not_specialize=["tokens", "heads", "kv_heads"])
def dq_kernel(
    dqkv, deltas, out, dout, lse, qkv, tokens, heads, kv_heads, scale,
    HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    stride = (heads + 2 * kv_heads) * HEAD
    base = qkv + batch.to(tl.int64) * tokens * stride
    first = (tl.num_programs(1) - 1 - tl.program_id(1)) * QUERIES
    query, column = first + tl.arange(0, QUERIES), tl.arange(0, HEAD)[None, :]
    inside = (query < tokens)[:, None]
    kv = heads + head // (heads // kv_heads)
    row = batch.to(tl.int64) * tokens + query
    at = row[:, None] * heads * HEAD + head * HEAD + column
    q = tl.load(base + query[:, None] * stride + head * HEAD + column, mask=inside, other=0.0)
    upper = tl.load(dout + at, mask=inside, other=0.0)
    delta = tl.sum(upper.to(tl.float32) * tl.load(out + at, mask=inside, other=0.0).to(tl.float32), axis=1)
    tl.store(deltas + tl.program_id(0) * tokens + query, delta, mask=query < tokens)
    kept = tl.load(lse + tl.program_id(0) * tokens + query, mask=query < tokens, other=0.0)
    dq = tl.zeros([QUERIES, HEAD], tl.float32)
    for begin in range(0, tl.minimum(first + QUERIES, tokens), KEYS):
        key = begin + tl.arange(0, KEYS)
        place = base + key[:, None] * stride + kv * HEAD + column
        k = tl.load(place, mask=(key < tokens)[:, None], other=0.0)
        v = tl.load(place + kv_heads * HEAD, mask=(key < tokens)[:, None], other=0.0)
        p = tl.where(key[None, :] <= query[:, None], tl.exp(tl.dot(q, k.T) * scale - kept[:, None]), 0.0)
        ds = p * (tl.dot(upper, v.T) - delta[:, None])
        dq = tl.dot(ds.to(tl.bfloat16), k, dq)
    place = dqkv + batch.to(tl.int64) * tokens * stride + query[:, None] * stride + head * HEAD + column
    tl.store(place, (dq * scale).to(tl.bfloat16), mask=inside)


@triton.jit(do_not_specialize=["tokens", "heads", "kv_heads"])
def dkv_kernel(
    dqkv, deltas, dout, lse, qkv, tokens, heads, kv_heads, scale,
    HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    batch, kv = tl.program_id(0) // kv_heads, tl.program_id(0) % kv_heads
    stride, group = (heads + 2 * kv_heads) * HEAD, heads // kv_heads
    base = qkv + batch.to(tl.int64) * tokens * stride
    column = tl.arange(0, HEAD)[None, :]
    key = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    place = key[:, None] * stride + (heads + kv) * HEAD + column
    k = tl.load(base + place, mask=(key < tokens)[:, None], other=0.0)
    v = tl.load(base + place + kv_heads * HEAD, mask=(key < tokens)[:, None], other=0.0)
    dk = tl.zeros([KEYS, HEAD], tl.float32)
    dv = tl.zeros([KEYS, HEAD], tl.float32)
    for head in range(kv * group, kv * group + group):
        line = (batch * heads + head) * tokens
        for begin in range(tl.program_id(1) * KEYS, tokens, QUERIES):
            query = begin + tl.arange(0, QUERIES)
            inside = (query < tokens)[:, None]
            row = batch.to(tl.int64) * tokens + query
            q = tl.load(base + query[:, None] * stride + head * HEAD + column, mask=inside, other=0.0)
            upper = tl.load(dout + row[:, None] * heads * HEAD + head * HEAD + column, mask=inside, other=0.0)
            kept = tl.load(lse + line + query, mask=query < tokens, other=float("inf"))
            delta = tl.load(deltas + line + query, mask=query < tokens, other=0.0)
            p = tl.where(key[:, None] <= query[None, :], tl.exp(tl.dot(k, q.T) * scale - kept[None, :]), 0.0)
            dv = tl.dot(p.to(tl.bfloat16), upper, dv)
            ds = p * (tl.dot(v, upper.T) - delta[None, :])
            dk = tl.dot(ds.to(tl.bfloat16), q, dk)
    base = dqkv + batch.to(tl.int64) * tokens * stride
    tl.store(base + place, (dk * scale).to(tl.bfloat16), mask=(key < tokens)[:, None])
    tl.store(base + place + kv_heads * HEAD, dv.to(tl.bfloat16), mask=(key < tokens)[:, None])


def attend(qkv, batch, heads, kv_heads, head):
    tokens = qkv.shape[0] // batch
    out = qkv.new_empty(qkv.shape[0], heads * head)
    lse = torch.empty(batch * heads, tokens, dtype=torch.float32, device=qkv.device)
    queries, keys, warps = TILES[head]
    grid = (batch * heads, triton.cdiv(tokens, queries))
    attention_kernel[grid](out, lse, qkv, tokens, heads, kv_heads, head**-0.5, head, queries, keys, num_warps=warps)
    return out, lse


def attend_backward(dout, out, lse, qkv, batch, heads, kv_heads, head):
    tokens = qkv.shape[0] // batch
    dqkv, deltas = torch.empty_like(qkv), torch.empty_like(lse)
    sizes = tokens, heads, kv_heads, head**-0.5, head
    queries, keys, warps = TILES[head]
    grid = (batch * heads, triton.cdiv(tokens, queries))
    dq_kernel[grid](dqkv, deltas, out, dout, lse, qkv, *sizes, queries, keys, num_warps=warps)
    queries, keys, warps = OF_KEYS[head]
    grid = (batch * kv_heads, triton.cdiv(tokens, keys))
    dkv_kernel[grid](dqkv, deltas, dout, lse, qkv, *sizes, queries, keys, num_warps=warps)
    return dqkv


@triton.jit
def gate_kernel(act, gu, n, hidden, BLOCK: tl.constexpr):
    """One axis, as Inductor writes elementwise kernels."""
    xindex = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    xmask = xindex < n
    x1, x0 = xindex // hidden, xindex % hidden
    gate = tl.load(gu + x1 * 2 * hidden + x0, xmask).to(tl.float32)
    up = tl.load(gu + x1 * 2 * hidden + hidden + x0, xmask).to(tl.float32)
    tl.store(act + xindex, (gate / (1 + tl.exp(-gate)) * up).to(tl.bfloat16), xmask)


@triton.jit
def gate_backward_kernel(dgu, act, gu, dact, n, hidden, BLOCK: tl.constexpr):
    """The gradients, and act once more, which was not kept."""
    xindex = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    xmask = xindex < n
    x1, x0 = xindex // hidden, xindex % hidden
    at = x1 * 2 * hidden + x0
    gate = tl.load(gu + at, xmask).to(tl.float32)
    up = tl.load(gu + at + hidden, xmask).to(tl.float32)
    upstream = tl.load(dact + xindex, xmask).to(tl.float32)
    s = 1 / (1 + tl.exp(-gate))
    tl.store(act + xindex, (gate * s * up).to(tl.bfloat16), xmask)
    tl.store(dgu + at, (upstream * up * s * (1 + gate * (1 - s))).to(tl.bfloat16), xmask)
    tl.store(dgu + at + hidden, (upstream * gate * s).to(tl.bfloat16), xmask)


def warps(columns):
    return max(1, min(8, columns // 512))


def add_norm(x, residual, weight):
    y, h = torch.empty_like(x), torch.empty_like(x)
    norm_kernel[(x.shape[0],)](
        y, h, x, residual, weight, x.shape[1], triton.next_power_of_2(x.shape[1]), num_warps=warps(x.shape[1])
    )
    return y, h


def add_norm_backward(dy, h, upstream, weight):
    dx, rows, columns = torch.empty_like(h), h.shape[0], h.shape[1]
    total = torch.zeros(weight.shape, dtype=torch.float32, device=h.device)
    block = triton.next_power_of_2(columns)
    norm_backward_kernel[(min(rows, 256),)](
        dx, total, dy, h, upstream, weight, rows, columns, block, num_warps=warps(columns)
    )
    dweight = torch.empty_like(weight)
    cast_kernel[(1,)](dweight, total, columns, block)
    return dx, dweight


def transformer_block(x, residual, norm1, wqkv, wo, norm2, wgu, wdown, cos, sin, dout, ds, heads, kv_heads):
    shape, (batch, tokens, width), hidden = x.shape, x.shape, wdown.shape[1]
    rows, head = batch * tokens, 2 * cos.shape[1]
    x, residual, dout, ds = (one.view(rows, width) for one in (x, residual, dout, ds))
    n, h = add_norm(x, residual, norm1)
    qkv = torch.nn.functional.linear(n, wqkv)
    columns, turned = qkv.shape[1], heads + kv_heads
    rope_kernel[(rows, turned)](qkv, cos, sin, tokens, columns, 1.0, head // 2)
    mixed, lse = attend(qkv, batch, heads, kv_heads, head)
    m, s = add_norm(mixed @ wo.t(), h, norm2)
    gu = m @ wgu.t()
    act = gu.new_empty(rows, hidden)
    grid = (triton.cdiv(act.numel(), 512),)
    gate_kernel[grid](act, gu, act.numel(), hidden, 512)
    out = act @ wdown.t()

    dact = dout @ wdown
    gate_backward_kernel[grid](gu, act, gu, dact, act.numel(), hidden, 512)
    dgu = gu  # the gradients lie where the gates were
    grads_of_mlp = dgu.t() @ m, dout.t() @ act
    dm = torch.mm(dgu, wgu, out=torch.empty_like(m))
    ds, dnorm2 = add_norm_backward(dm, s, ds, norm2)
    dmixed, dwo = ds @ wo, ds.t() @ mixed
    dqkv = attend_backward(dmixed, mixed, lse, qkv, batch, heads, kv_heads, head)
    rope_kernel[(rows, turned)](dqkv, cos, sin, tokens, columns, -1.0, head // 2)
    dx, dnorm1 = add_norm_backward(torch.mm(dqkv, wqkv, out=dm), h, ds, norm1)
    out, s, dx = (one.view(shape) for one in (out, s, dx))
    return out, s, dx, dnorm1, dqkv.t() @ n, dwo, dnorm2, *grads_of_mlp
