"""Descriptors of the host, and as many programs as tiles."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tile(a, b, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TA: tl.constexpr, TB: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK):
        x = tl.trans(a.load([k, row])) if TA else a.load([row, k])
        y = tl.trans(b.load([column, k])) if TB else b.load([k, column])
        acc += tl.dot(x, y)
    out.store([row, column], acc.to(out.dtype))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    ta, tb = not a.is_contiguous(), not b.is_contiguous()
    BM, BN, BK = 128, 128, 64
    of_a = TensorDescriptor(a, [K, M], [a.stride(1), 1], [BK, BM]) if ta else TensorDescriptor.from_tensor(a, [BM, BK])
    of_b = TensorDescriptor(b, [N, K], [b.stride(1), 1], [BN, BK]) if tb else TensorDescriptor.from_tensor(b, [BK, BN])
    of_out = TensorDescriptor.from_tensor(out, [BM, BN])
    tile[triton.cdiv(M, BM), triton.cdiv(N, BN)](of_a, of_b, of_out, K, BM, BN, BK, ta, tb, num_warps=8, num_stages=4)
    return out
