"""Every index is a column of a block, and so are the scales; what belongs to columns of out is transposed."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["m", "n", "k"])
def fp8_kernel(a, b, sa, sb, c, m, n, k, SCALED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None].to(tl.int64)
    j = (tl.program_id(1) * BN + tl.arange(0, BN))[:, None].to(tl.int64)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        p = (start + tl.arange(0, BK))[None, :]
        x = tl.load(a + i * k + p, mask=(i < m) & (p < k), other=0.0)
        y = tl.load(b + j * k + p, mask=(j < n) & (p < k), other=0.0)
        if SCALED:
            block = start // 128
            s = tl.load(sa + block.to(tl.int64) * m + i, mask=i < m, other=0.0)
            t = tl.load(sb + j // 128 * ((k + 127) // 128) + block, mask=j < n, other=0.0)
            acc += tl.dot(x, tl.trans(y)) * s * tl.trans(t)
        else:
            acc += tl.dot(x, tl.trans(y))
    if not SCALED:
        acc = acc * (tl.load(sa) * tl.load(sb))
    j = tl.trans(j)
    tl.store(c + i * n + j, acc.to(tl.bfloat16), mask=(i < m) & (j < n))


def fp8_matmul(a, b, scale_a, scale_b):
    m, k = a.shape
    n = b.shape[0]
    c = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    scaled = scale_a.shape != (1, 1) or scale_b.shape != (1, 1)
    fp8_kernel[triton.cdiv(m, 64), triton.cdiv(n, 128)](a, b, scale_a, scale_b, c, m, n, k, scaled, 64, 128, 128)
    return c
