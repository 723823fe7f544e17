"""One product of twice the width, whose columns take turns between gate and up, as engines for inference lay them out.

Here w is interleaved by a kernel first, which a layer does once, when it is loaded. The gradients of gate and up are
two matrices, and dx is the sum of two products.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def interleave(out, w, n, k, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(w + (row % 2 * n + row // 2) * k + column, mask=column < k)
    tl.store(out + row * k + column, value, mask=column < k)


@triton.jit
def fwd(x, w, h, g, u, m, n, k, TRAIN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    j2 = tl.program_id(1) * 2 * BN + tl.arange(0, 2 * BN)
    at = tl.arange(0, BK)
    acc = tl.zeros((BM, 2 * BN), tl.float32)
    for start in range(0, k, BK):
        x_tile = tl.load(x + i[:, None] * k + start + at, mask=(i[:, None] < m) & (start + at < k), other=0.0)
        w_tile = tl.load(w + j2[:, None] * k + start + at, mask=(j2[:, None] < 2 * n) & (start + at < k), other=0.0)
        acc = tl.dot(x_tile, w_tile.T, acc)
    gate, up = tl.split(tl.reshape(acc, (BM, BN, 2)))
    offsets, inside = i[:, None] * n + j, (i[:, None] < m) & (j < n)
    if TRAIN:
        tl.store(g + offsets, gate.to(g.dtype.element_ty), mask=inside)
        tl.store(u + offsets, up.to(u.dtype.element_ty), mask=inside)
    tl.store(h + offsets, (gate * tl.sigmoid(gate) * up).to(h.dtype.element_ty), mask=inside)


@triton.jit
def bwd(g, u, dh, elements, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(g + at, mask=at < elements).to(tl.float32)
    up = tl.load(u + at, mask=at < elements).to(tl.float32)
    d = tl.load(dh + at, mask=at < elements).to(tl.float32)
    sig = tl.sigmoid(gate)
    silu = gate * sig
    tl.store(u + at, (d * silu).to(u.dtype.element_ty), mask=at < elements)
    tl.store(g + at, (d * up * (silu * (1 - sig) + sig)).to(g.dtype.element_ty), mask=at < elements)


@triton.jit
def two_products(
    out, a, b, c, d, m, n, k, row, col, TWO: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """out = a @ b, or a @ b + c @ d; a and c have the strides row and col."""
    i, j = tl.program_id(0) * BM + tl.arange(0, BM)[:, None], tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        p, q = start + tl.arange(0, BK)[None, :], start + tl.arange(0, BK)[:, None]
        left, right = (i < m) & (p < k), (q < k) & (j < n)
        acc = tl.dot(tl.load(a + i * row + p * col, left, 0.0), tl.load(b + q * n + j, right, 0.0), acc)
        if TWO:
            acc = tl.dot(tl.load(c + i * row + p * col, left, 0.0), tl.load(d + q * n + j, right, 0.0), acc)
    tl.store(out + i * n + j, acc.to(out.dtype.element_ty), mask=(i < m) & (j < n))


def swiglu(x, w, dh):
    (m, k), n = x.shape, w.shape[0] // 2
    h, turns = x.new_empty(m, n), torch.empty_like(w)
    g, u = (h, h) if dh is None else (torch.empty_like(h), torch.empty_like(h))
    interleave[2 * n, triton.cdiv(k, 1024)](turns, w, n, k, 1024)
    fwd[triton.cdiv(m, 64), triton.cdiv(n, 32)](x, turns, h, g, u, m, n, k, dh is not None, 64, 32, 32, num_stages=2)
    if dh is None:
        return h
    bwd[triton.cdiv(m * n, 1024),](g, u, dh, m * n, 1024)
    dx, dw = torch.empty_like(x), torch.empty_like(w)
    across = triton.cdiv(k, 64)
    two_products[triton.cdiv(m, 64), across](dx, g, w, u, w[n:], m, k, n, n, 1, True, 64, 64, 32, num_stages=2)
    for half, of in ((dw[:n], g), (dw[n:], u)):
        two_products[triton.cdiv(n, 64), across](half, of, x, of, x, n, k, m, 1, n, False, 64, 64, 32, num_stages=2)
    return h, dx, dw
