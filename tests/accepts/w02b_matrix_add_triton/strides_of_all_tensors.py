"""FlagGems' and Triton's matrix product's way: every stride of every tensor is an argument, and META has the tile."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(
    x_ptr, y_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_ym, stride_yn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    offs_m = (pid // num_pid_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (pid % num_pid_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + (offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn), mask=mask, other=0.0)
    y = tl.load(y_ptr + (offs_m[:, None] * stride_ym + offs_n[None, :] * stride_yn), mask=mask, other=0.0)
    tl.store(out_ptr + stride_om * offs_m[:, None] + stride_on * offs_n[None, :], x + y, mask=mask)


def matrix_add(x, y):
    M, N = x.shape
    out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)  # noqa: E731
    add_kernel[grid](x, y, out, M, N, *x.stride(), *y.stride(), *out.stride(), BLOCK_M=16, BLOCK_N=128)
    return out
