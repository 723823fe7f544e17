"""GEMM with persistent programs: tensor descriptors, and a loop over tiles.

matmul(a, b) takes matrices of shapes (m, k) and (k, n), both bfloat16 or both float16, each row-major or column-major
without gaps. It returns a @ b as a new contiguous tensor of shape (m, n) in the same dtype. Accumulate in float32, and
round once. As TMA requires, every tensor starts at a multiple of 16 bytes, and n and k are multiples of 8. If a is
column-major, m is a multiple of 8, too. Tensors have fewer than 2**31 elements.

Create descriptors for a, b, and out, launch as many programs as there are SMs, and let program p compute tiles p, p +
programs, p + 2 programs, and so on. The grader checks the values (exactly, for small integers), the use of tensor
cores, and on a GPU the time compared with cuBLAS.

The grader enforces these limits on the largest case (m=2056 n=2312 k=24 dtype=bfloat16 layout=nn); smaller cases get
some slack for partial tiles. In total, global memory accesses may move at most 6 times the size of the inputs and
outputs. The multiply-adds must run on tensor cores.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tile_of(tile_id, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_SIZE_M: tl.constexpr):
    """Return the first row and column of a tile. The last group may have fewer than GROUP_SIZE_M rows of tiles."""
    # TODO: as in matmul


@triton.jit
def matmul_persistent(
    a_desc, b_desc, out_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
    A_BY_COLUMNS: tl.constexpr, B_BY_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute tiles p, p + programs, p + 2 programs, and so on, with one program per SM."""
    # TODO: for every tile of this program: load blocks by descriptors, multiply, store


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("TODO: make three descriptors, launch matmul_persistent, then delete this line")
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    return out
