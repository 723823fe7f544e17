"""Descriptors made on the device where rows begin at multiples of 16 bytes, and blocks of pointers elsewhere."""

import torch
import triton
import triton.language as tl


@triton.jit
def finished(acc, bias, n, column, BN: tl.constexpr, ACT: tl.constexpr):
    at = column + tl.arange(0, BN)
    if bias is not None:
        acc += tl.load(bias + at, at < n, 0.0).to(tl.float32)[None, :]
    if ACT == "relu":
        acc = tl.maximum(acc, 0)
    if ACT == "gelu":
        acc = acc * (0.5 * tl.erf(acc * 0.7071067811865476) + 0.5)
    return acc


@triton.jit
def by_descriptors(x, y, z, bias, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACT: tl.constexpr):
    across = tl.cdiv(n, BN)
    row, column = tl.program_id(0) // across * BM, tl.program_id(0) % across * BN
    left = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BM, BK])
    right = tl.make_tensor_descriptor(y, [k, n], [n, 1], [BK, BN])
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        acc = tl.dot(left.load([row, at]), right.load([at, column]), acc)
    target = tl.make_tensor_descriptor(z, [m, n], [n, 1], [BM, BN])
    target.store([row, column], finished(acc, bias, n, column, BN, ACT).to(z.dtype.element_ty))


@triton.jit
def by_pointers(
    x, y, z, bias, m, n, k, sx0, sx1, sy0, sy1, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACT: tl.constexpr
):
    across = tl.cdiv(n, BN)
    row, column = tl.program_id(0) // across * BM, tl.program_id(0) % across * BN
    i, j = (row + tl.arange(0, BM)).to(tl.int64)[:, None], (column + tl.arange(0, BN)).to(tl.int64)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        depth = (at + tl.arange(0, BK)).to(tl.int64)
        p = tl.load(x + i * sx0 + depth[None, :] * sx1, (i < m) & (depth[None, :] < k), 0.0)
        q = tl.load(y + depth[:, None] * sy0 + j * sy1, (depth[:, None] < k) & (j < n), 0.0)
        acc = tl.dot(p, q, acc)
    tl.store(z + i * n + j, finished(acc, bias, n, column, BN, ACT).to(z.dtype.element_ty), (i < m) & (j < n))


def matmul(a, b, bias, activation):
    (m, k), n = a.shape, b.shape[-1]
    z = torch.empty(m, n, dtype=a.dtype, device=a.device)
    sizes = {"BM": 128, "BN": 128, "BK": 64, "ACT": activation, "num_warps": 8, "num_stages": 2}
    grid = (triton.cdiv(m, 128) * triton.cdiv(n, 128),)
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device=a.device))
    aligned = k % 8 == 0 and n % 8 == 0 and (a.data_ptr() | b.data_ptr()) % 16 == 0
    if aligned and a.is_contiguous() and b.is_contiguous():
        by_descriptors[grid](a, b, z, bias, m, n, k, **sizes)
    else:
        by_pointers[grid](a, b, z, bias, m, n, k, *a.stride(), *b.stride(), **sizes)
    return z
