"""As PyTorch's Inductor writes a template: strides as arguments, the weight as a view, indices that wrap, groups."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["M", "N", "K", "stride_am", "stride_bn"])
def triton_mm_int8(
    A, B, S0, S1, OUT, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    grid_m = (M + BLOCK_M - 1) // BLOCK_M
    grid_n = (N + BLOCK_N - 1) // BLOCK_N
    width = GROUP_M * grid_n
    group_id = pid // width
    group_size = min(grid_m - group_id * GROUP_M, GROUP_M)
    pid_m = group_id * GROUP_M + (pid % group_size)
    pid_n = (pid % width) // group_size
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ram = (rm % M).to(tl.int64)
    rbn = (rn % N).to(tl.int64)
    rk = tl.arange(0, BLOCK_K)
    A = A + (ram[:, None] * stride_am + rk[None, :] * stride_ak)
    B = B + (rk[:, None] * stride_bk + rbn[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for k in range(K, 0, -BLOCK_K):
        if EVEN_K:
            a = tl.load(A)
            b = tl.load(B)
        else:
            a = tl.load(A, mask=rk[None, :] < k, other=0)
            b = tl.load(B, mask=rk[:, None] < k, other=0)
        acc += tl.dot(a, b, out_dtype=tl.int32)
        A += BLOCK_K * stride_ak
        B += BLOCK_K * stride_bk
    idx_m = rm[:, None].to(tl.int64)
    idx_n = rn[None, :]
    mask = (idx_m < M) & (idx_n < N)
    tmp0 = tl.load(S0 + idx_m, mask=idx_m < M, other=0.0)
    tmp1 = tl.load(S1 + idx_n, mask=idx_n < N, other=0.0)
    tmp2 = acc.to(tl.float32) * tmp0
    tl.store(OUT + idx_m * N + idx_n, (tmp2 * tmp1).to(tl.bfloat16), mask=mask)


def int8_matmul(a, b, scale_a, scale_b):
    weight = b.t()
    (M, K), N = a.shape, weight.shape[1]
    out = a.new_empty((M, N), dtype=torch.bfloat16)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    triton_mm_int8[grid](
        a, weight, scale_a, scale_b, out, M, N, K, *a.stride(), *weight.stride(),
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, GROUP_M=8, EVEN_K=K % 64 == 0, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out
