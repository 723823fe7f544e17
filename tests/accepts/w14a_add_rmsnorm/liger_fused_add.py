"""Liger's fused_add_rms_norm: row strides, the reciprocal root kept for a backward pass, an autograd Function."""

import torch
import triton
import triton.language as tl
from triton.language.extra.libdevice import rsqrt


@triton.jit
def _fused_add_rms_norm_forward_kernel(Y, S, X, R, W, RSTD, row_stride, n_cols, eps, offset, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    X_row = tl.load(X + row_idx * row_stride + col_offsets, mask=mask, other=0).to(tl.float32)
    R_row = tl.load(R + row_idx * row_stride + col_offsets, mask=mask, other=0).to(tl.float32)
    S_row = (X_row + R_row).to(S.dtype.element_ty)
    tl.store(S + row_idx * row_stride + col_offsets, S_row, mask=mask)
    S_row = S_row.to(tl.float32)
    rstd = rsqrt(tl.sum(S_row * S_row, axis=0) / n_cols + eps)
    tl.store(RSTD + row_idx, rstd)
    W_row = tl.load(W + col_offsets, mask=mask, other=0).to(tl.float32)
    tl.store(Y + row_idx * row_stride + col_offsets, S_row * rstd * (offset + W_row), mask=mask)


class AddRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, R, W, eps, offset):
        n_rows, n_cols = X.shape
        Y, S = torch.empty_like(X), torch.empty_like(X)
        RSTD = torch.empty(n_rows, dtype=torch.float32, device=X.device)
        block = triton.next_power_of_2(n_cols)
        _fused_add_rms_norm_forward_kernel[(n_rows,)](
            Y, S, X, R, W, RSTD, X.stride(0), n_cols, eps, offset, BLOCK_SIZE=block, num_warps=32 if block > 4096 else 8
        )
        ctx.save_for_backward(S, W, RSTD)
        return Y, S


def add_rmsnorm(x, residual, weight):
    return AddRMSNorm.apply(x, residual, weight, 1e-6, 0.0)
