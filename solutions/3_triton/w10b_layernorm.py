"""Layer normalization over the rows of a matrix, in one kernel.

layernorm(x, weight, bias, eps) takes a contiguous 2-D bfloat16 or float32 tensor with any number of rows and 1 to 65536
columns, and two vectors of the same dtype with a weight and a bias for each column. It returns (y, mean, rstd), where y
= (x - mean) * rstd * weight + bias in the dtype of x, and for each row, in float32, mean is its mean and rstd = 1 /
sqrt(mean of (x - mean)^2 over the row + eps). The arithmetic is float32, and the result must be right even if a row's
mean is a few hundred times its standard deviation. Tensors may have more than 2**32 elements, so offsets need 64 bits.

Start from the fused softmax, with a row in the registers of one program, and compute two sums over it. The backward
pass will read mean and rstd. Then split long rows into several blocks, so that few elements are masked. The grader
checks the values, the bytes moved, and, on a GPU, the time compared with the formula written as PyTorch operators.

The grader enforces these limits on the largest case (rows=35 columns=2048 dtype=float32); smaller cases get some slack
for partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global
memory accesses may move at most 2.2 times the size of the inputs and outputs. Bank conflicts may add at most 1
wavefront per request.

Bytes: x and y, 537 MB for 16384 x 8192 bfloat16, 0.13 ms at the 4.1 TB/s that a copy reaches on an H200; weight and
bias come from L2. There are about 8 operations per value, so the kernel is memory-bound.

Measured for 16384 x 8192 in bfloat16 on an H200: 138 us, 19.2× faster than the formula in operators, and as fast as the
expert kernel. Rows of more than 16,384 columns are read three times: for the mean, for the variance, and for y. The
expert kernel spreads such a row over several programs. The names come from Triton's tutorial 05
(https://triton-lang.org/main/getting-started/tutorials/05-layer-norm.html).
"""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(Y, Mean, Rstd, X, W, B, N, eps, BLOCK_SIZE: tl.constexpr):
    """Normalize a row of N columns, which one program holds as a block of BLOCK_SIZE columns."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < N
    x = tl.load(X + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    # Use distances from the mean, because a difference of two sums of squares cancels if the mean is large. Past the
    # end of the row, x is 0, but its distance is not 0, so the mask is needed again.
    centered = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    w = tl.load(W + cols, mask=mask).to(tl.float32)
    b = tl.load(B + cols, mask=mask).to(tl.float32)
    y = centered * rstd * w + b
    tl.store(Y + row * N + cols, y.to(Y.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_long_kernel(Y, Mean, Rstd, X, W, B, N, eps, BLOCK_SIZE: tl.constexpr):
    """Normalize a row that does not fit in registers: a loop for the mean, for the variance, and for y."""
    row = tl.program_id(0).to(tl.int64)
    X += row * N
    Y += row * N
    sums = tl.zeros([BLOCK_SIZE], tl.float32)  # a sum per element of the block, so that the loop does no reduction
    for start in tl.range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        sums += tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / N
    squares = tl.zeros([BLOCK_SIZE], tl.float32)
    for start in tl.range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        centered = tl.where(cols < N, x - mean, 0.0)
        squares += centered * centered
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for start in tl.range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=mask).to(tl.float32)
        b = tl.load(B + cols, mask=mask).to(tl.float32)
        y = (x - mean) * rstd * w + b
        tl.store(Y + cols, y.to(Y.dtype.element_ty), mask=mask)


def layernorm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    M, N = x.shape
    y = torch.empty_like(x)
    mean, rstd = torch.empty(2, len(x), dtype=torch.float32, device=x.device)
    BLOCK_SIZE = triton.next_power_of_2(N)
    if BLOCK_SIZE <= 16_384:
        num_warps = min(max(BLOCK_SIZE // 1024, 1), 16)  # 32 values per thread
        layer_norm_kernel[M,](y, mean, rstd, x, weight, bias, N, eps, BLOCK_SIZE, num_warps=num_warps)
    else:
        layer_norm_long_kernel[M,](y, mean, rstd, x, weight, bias, N, eps, BLOCK_SIZE=4096, num_warps=8)
    return y, mean, rstd
