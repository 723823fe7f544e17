"""Liger's and Unsloth's way: settings by the row's length, an autograd Function, contiguous inputs ensured."""

import functools

import torch
import triton
import triton.language as tl

MAX_FUSED_SIZE = 262144


def calculate_settings(n):
    block = triton.next_power_of_2(n)
    if block > MAX_FUSED_SIZE:
        raise RuntimeError(f"cannot launch a kernel for {n} columns")
    return block, 32 if block >= 32768 else 16 if block >= 8192 else 8 if block >= 2048 else 4


def ensure_contiguous(function):
    @functools.wraps(function)
    def wrapper(ctx, *args, **kwargs):
        return function(ctx, *(arg.contiguous() if isinstance(arg, torch.Tensor) else arg for arg in args), **kwargs)

    return wrapper


@triton.jit
def _softmax_single_block_forward_kernel(Y, Y_row_stride, X, X_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row_id = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_cols
    x = tl.load(X + row_id * X_row_stride + offsets, mask=mask, other=float("-inf"), cache_modifier=".ca").to(
        tl.float32
    )
    x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    tl.store(Y + row_id * Y_row_stride + offsets, e / tl.sum(e, axis=0), mask=mask, cache_modifier=".cs")


class Softmax(torch.autograd.Function):
    @staticmethod
    @ensure_contiguous
    def forward(ctx, input_):
        *batch, n_cols = input_.shape
        x2d = input_.view(-1, n_cols)
        y2d = torch.empty_like(x2d)
        block, warps = calculate_settings(n_cols)
        args = (y2d, y2d.stride(0), x2d, x2d.stride(0), n_cols)
        _softmax_single_block_forward_kernel[(x2d.shape[0],)](*args, BLOCK_SIZE=block, num_warps=warps)
        return y2d.view(*batch, n_cols)


def fused_softmax(x):
    return Softmax.apply(x)
