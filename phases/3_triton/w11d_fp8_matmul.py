"""GEMM of float8 matrices with block scales: accumulators on two levels, in the tensor cores and in registers.

fp8_matmul(a, b, scale_a, scale_b) takes contiguous float8_e4m3fn matrices a (m, k) and b (n, k) of any nonzero size. b
has one row per column of the result, like the weight of nn.Linear. It returns a new bfloat16 tensor (m, n). The scales
are contiguous float32 tensors. Either both have shape (1, 1), one scale for all of a and one for all of b, or they are
for blocks of 128:

    scale_a (ceil(k / 128), m)               one for each 128 values of a row of a
    scale_b (ceil(n / 128), ceil(k / 128))   one for each 128 x 128 values of b

    out[i, j] = sum over p of a[i, p] * scale_a[p // 128, i] * b[j, p] * scale_b[j // 128, p // 128]

The sum must be as accurate as in float32. Hopper's tensor cores keep only 14 bits of an fp8 accumulator, so add it to a
float32 accumulator in registers at least every 512 values along k. Tensors do not always start at a multiple of 16
bytes, and they may have more than 2**32 elements, so offsets need 64 bits.

Start with one tile of out per program and total += tl.dot(x, y) * scales, 128 values along k at a time. The grader
checks the values, the use of tensor cores, the bytes moved, and on a GPU the time compared with dequantizing the
matrices to bfloat16 and multiplying them with the library.

The grader enforces these limits on the largest case (m=256 n=256 k=512 dtype=float8_e4m3fn scales=block); smaller cases
get some slack for partial tiles. Each load or store may touch at most 2 times the sectors that its bytes require. In
total, global memory accesses may move at most 3.5 times the size of the inputs and outputs. The multiply-adds must run
on tensor cores.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def product(
    a, b, scale_a, scale_b, out_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_SIZE_M: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Compute tiles of BLOCK_M x BLOCK_N of out. BLOCKS: whether the scales are per block."""
    # TODO: multiply tiles 128 values at a time, promote the sums with their scales, then store


def fp8_matmul(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("TODO: choose the tile, num_warps and num_stages, launch product, then delete this line")
    (m, k), n = a.shape, len(b)
    out = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    return out
