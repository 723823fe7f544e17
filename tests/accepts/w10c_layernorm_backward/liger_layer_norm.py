"""Liger's way: a program per SM, each with rows that follow one another, and torch.sum over what they hold."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def _layer_norm_backward_kernel(
    X_ptr, stride_x, W_ptr, Mean_ptr, RSTD_ptr, DX_ptr, DW_ptr, stride_dw, DB_ptr, DY_ptr, n_rows, n_cols,
    rows_per_program, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    row_start = pid * rows_per_program
    row_end = min(row_start + rows_per_program, n_rows)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    w = tl.load(W_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    dW_row = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    db_row = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for row_idx in range(row_start, row_end):
        x = tl.load(X_ptr + row_idx * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY_ptr + row_idx * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(Mean_ptr + row_idx)
        rstd = tl.load(RSTD_ptr + row_idx)
        x_hat = (x - mean) * rstd
        wdy = w * dy
        c1 = tl.sum(x_hat * wdy, axis=0) / n_cols
        c2 = tl.sum(wdy, axis=0) / n_cols
        dx = (wdy - (x_hat * c1 + c2)) * rstd
        tl.store(DX_ptr + row_idx * stride_x + cols, dx, mask=mask)
        dW_row += dy * x_hat
        db_row += dy
    tl.store(DW_ptr + pid * stride_dw + cols, dW_row, mask=mask)
    tl.store(DB_ptr + pid * stride_dw + cols, db_row, mask=mask)


@triton.jit
def _sum_kernel(out, partial, n_parts, n_cols, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(n_parts):
        total += tl.load(partial + part * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(out + cols, total, mask=cols < n_cols)


def layernorm_backward(dY, X, W, Mean, RSTD):
    n_rows, n_cols = X.shape
    sms = torch.cuda.get_device_properties(X.device if X.is_cuda else None).multi_processor_count
    rows_per_program = math.ceil(n_rows / sms)
    _DW = torch.zeros((sms, n_cols), dtype=torch.float32, device=W.device)
    _DB = torch.zeros((sms, n_cols), dtype=torch.float32, device=W.device)
    DX, DW, DB = torch.empty_like(X), torch.empty_like(W), torch.empty_like(W)
    block = triton.next_power_of_2(n_cols)
    warps = 32 if block >= 32768 else 16 if block >= 8192 else 8 if block >= 2048 else 4
    _layer_norm_backward_kernel[(sms,)](
        X, X.stride(0), W, Mean, RSTD, DX, _DW, _DW.stride(0), _DB, dY, n_rows, n_cols, rows_per_program, block,
        num_warps=warps,
    )  # fmt: skip
    for out, partial in ((DW, _DW), (DB, _DB)):
        _sum_kernel[(triton.cdiv(n_cols, 256),)](out, partial, sms, n_cols, BLOCK=256)
    return DX, DW, DB
