"""Grouped GEMM: one launch for all experts and any number of rows per expert.

grouped_gemm(x, w, source, offsets) takes contiguous tensors: x of shape (tokens, k) and w of shape (experts, n, k),
both bfloat16, source of shape (rows,) and offsets of shape (experts + 1,), both int32. Expert e has the rows from
offsets[e] to offsets[e + 1] - 1, and there is at least one row. source[r] is the token of row r. It returns a new
bfloat16 tensor of shape (rows, n):

    out[r] = x[source[r]] @ w[e].T for the expert e of row r

The accumulators are float32, and rounded once. n and k are multiples of 16, and there are up to 512 experts. An expert
may have all rows or none. The weight of an expert without rows may contain NaN; x and all other weights may contain
infinities. source and offsets are on the device, and the host must not wait for them. Every tensor starts at a multiple
of 16 bytes. x, w, and out may have more than 2**32 elements: offsets into them need 64 bits. On GPUs older than sm_80,
which lack bfloat16, x and w are float16.

Start with the kernel from matmul (week 11). Each program finds its own tile. An expert has ceil(rows of the expert /
BLOCK_M) tiles with consecutive numbers. The grader checks the values (exactly, for small integers), the use of tensor
cores, and the bytes moved. On a GPU, it compares the time with a loop that calls cuBLAS for each expert, for which the
host has to wait for the offsets. The limit on bytes leaves no room for the weights of experts without rows.

The grader enforces these limits on the largest case (groups=14x0+6x5+70+24 tokens=62 n=256 k=256 dtype=bfloat16);
smaller cases get some slack for partial tiles. In total, global memory accesses may move at most 2.5 times the size of
the inputs and outputs. The multiply-adds must run on tensor cores.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def find_tile(tile, offsets_ptr, experts, BLOCK_M: tl.constexpr, EXPERTS: tl.constexpr):
    """Return the expert of a tile, the tile's first row, and the end of the expert's rows; EXPERTS for no expert."""
    # TODO: load all offsets, count the tiles of each expert, and scan the counts


@triton.jit
def grouped_kernel(out_ptr, x_ptr, w_ptr, source_ptr, offsets_ptr, experts, n, k, BLOCK_M: tl.constexpr,
                   BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EXPERTS: tl.constexpr):  # fmt: skip
    """Compute one tile of out. Neighboring tiles along axis 0 mostly have the same columns of the same weight."""
    # TODO: as in week 11's matmul, with gathered rows of x and the weight of one expert


def grouped_gemm(x: torch.Tensor, w: torch.Tensor, source: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("TODO: launch as many programs as there could be tiles, then delete this line")
    rows, (experts, n, k) = len(source), w.shape
    out = x.new_empty(rows, n)
    return out
