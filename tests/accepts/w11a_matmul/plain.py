"""A grid of two dimensions, one tile size, offsets computed anew in every step."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    M,
    N,
    K,
    sam,
    sak,
    sbk,
    sbn,
    HAS_BIAS: tl.constexpr,
    ACT: tl.constexpr,
    B: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    j = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), dtype=tl.float32)
    for k0 in range(0, tl.cdiv(K, 32)):
        k = k0 * 32 + tl.arange(0, 32).to(tl.int64)
        a = tl.load(a_ptr + i[:, None] * sam + k[None, :] * sak, mask=(i[:, None] < M) & (k[None, :] < K), other=0)
        b = tl.load(b_ptr + k[:, None] * sbk + j[None, :] * sbn, mask=(k[:, None] < K) & (j[None, :] < N), other=0)
        acc += tl.dot(a, b)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0)[None, :]
    if ACT == "relu":
        acc = tl.where(acc > 0, acc, 0)
    if ACT == "gelu":
        acc = acc * 0.5 * (1 + tl.math.erf(acc / 1.4142135623730951))
    tl.store(c_ptr + i[:, None] * N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))


def matmul(a, b, bias, activation):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    strides = (a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    kernel[grid](a, b, a if bias is None else bias, c, M, N, K, *strides, bias is not None, activation, 64)
    return c
