"""As xFormers' and Kernl's fused linear layers: rows and columns wrap around, and sums begin with the bias."""

import torch
import triton
import triton.language as tl


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit(do_not_specialize_on_alignment=["BIAS", "SCALE"])
def kernel_fma(
    OUT, A, W, BIAS, SCALE, RESIDUAL, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = pid // num_pid_in_group * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    rm = (first_pid_m + pid % group_size_m).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = (pid % num_pid_in_group // group_size_m).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = A + (rm % M)[:, None] * K + rk[None, :]
    w_ptrs = W + rk[:, None] * N + (rn % N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    acc += tl.load(BIAS + rn, mask=rn < N, other=0.0).to(tl.float32)[None, :]
    for k in range(K, 0, -BLOCK_K):
        a = tl.load(a_ptrs, mask=rk[None, :] < k, other=0.0)
        w = tl.load(w_ptrs, mask=rk[:, None] < k, other=0.0)
        acc += tl.dot(a, w)
        a_ptrs += BLOCK_K
        w_ptrs += BLOCK_K * tl.cast(N, tl.int64)
    acc = 0.5 * acc * (1 + tanh(0.7978845608028654 * (acc + 0.044715 * acc * acc * acc)))
    acc *= tl.load(SCALE + rm, mask=rm < M, other=0.0)[:, None]
    at, mask = rm[:, None] * N + rn[None, :], (rm < M)[:, None] & (rn < N)[None, :]
    acc += tl.load(RESIDUAL + at, mask=mask)
    tl.store(OUT + at, acc, mask=mask)


def gemm_epilogue(a, b, bias, scale, residual):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    BLOCK_M, BLOCK_N, BLOCK_K, warps = (128, 256, 64, 8) if min(M, N) >= 1024 else (64, 64, 32, 4)
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
    blocks = BLOCK_M, BLOCK_N, BLOCK_K, 8
    kernel_fma[grid](out, a, b, bias, scale, residual, M, N, K, *blocks, num_warps=warps, num_stages=3)
    return out
