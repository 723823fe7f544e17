"""DeepSeek's and vLLM's way: pointers that advance, indices that wrap, strides of the scales as arguments."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["M", "N", "K", "stride_ask", "stride_asm", "stride_bsn", "stride_bsk"])
def w8a8_block_fp8_matmul(
    A, B, C, As, Bs, M, N, K, stride_asm, stride_ask, stride_bsn, stride_bsk, group_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first_pid_m = pid // num_pid_in_group * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + pid % group_size_m
    pid_n = pid % num_pid_in_group // group_size_m
    offs_am = ((pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M).to(tl.int64)
    offs_bn = ((pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = A + offs_am[:, None] * K + offs_k[None, :]
    b_ptrs = B + offs_bn[None, :] * K + offs_k[:, None]
    As_ptrs = As + offs_am * stride_asm
    Bs_ptrs = Bs + offs_bn // group_n * stride_bsn
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        a_s = tl.load(As_ptrs)
        b_s = tl.load(Bs_ptrs)
        accumulator += tl.dot(a, b) * a_s[:, None] * b_s[None, :]
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
        As_ptrs += stride_ask
        Bs_ptrs += stride_bsk
    offs_cm = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(C + offs_cm[:, None] * N + offs_cn[None, :], accumulator.to(tl.bfloat16), mask=c_mask)


def fp8_matmul(a, b, scale_a, scale_b):
    M, K = a.shape
    N = b.shape[0]
    per_tensor = scale_a.numel() == 1 and scale_b.numel() == 1
    strides = (0, 0, 0, 0) if per_tensor else (1, M, scale_b.shape[1], 1)
    C = a.new_empty((M, N), dtype=torch.bfloat16)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    w8a8_block_fp8_matmul[grid](
        a, b, C, scale_a, scale_b, M, N, K, *strides, 128,
        BLOCK_M=64, BLOCK_N=128, BLOCK_K=128, GROUP_M=8, num_warps=4, num_stages=2,
    )  # fmt: skip
    return C
