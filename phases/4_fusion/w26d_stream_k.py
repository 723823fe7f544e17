"""Stream-K: a GEMM that divides the k-tiles of all output tiles evenly among the SMs.

stream_k(a, b) takes contiguous bfloat16 matrices that start at a multiple of 16 bytes: a of shape (m, k) and b of shape
(n, k), where k is a multiple of 8. It returns a @ b.T as a new bfloat16 tensor, with float32 accumulators that are
rounded once. The same inputs always give the same bits. Each tensor has fewer than 2**31 elements.

Launch one program per SM, and give all of them an equal share of the k-tiles of all output tiles, to within one k-tile.
A share may start and end in the middle of an output tile. Programs that share a tile store their partial accumulators
to a workspace, and one of them adds the accumulators in ascending order of k and stores the tile. Programs may run in
any order. The grader checks the values, that the bits are the same for every block order, races, the use of tensor
cores, and the bytes moved. In the largest case, on 5 SMs, the busiest program may read 19.6% to 22.0% of b. A GPU has
more SMs, so there the bytes are counted but not limited, and the time is compared with PyTorch's GEMM.

The grader enforces these limits on the largest case (m=64 n=768 k=2048); smaller cases get some slack for partial
tiles. In total, global memory accesses may move at most 3 times the size of the inputs and outputs. The multiply-adds
must run on tensor cores.
"""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 64


@triton.jit
def multiply(a_ptr, b_ptr, M, N, K, off_m, off_n, first, last,
             BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """Return the accumulators of one tile for the k-tiles from first to last - 1."""
    # TODO: as in week 11's matmul, for a part of k


@triton.jit
def add_parts(parts_ptr, first, last, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Add the accumulators that the programs from first to last stored for a tile, in this order."""
    # TODO: load the part of each program, and add the parts in ascending order


@triton.jit
def stream_k_kernel(out_ptr, a_ptr, b_ptr, parts_ptr, counters_ptr, M, N, K,
                    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """Compute this program's share of all k-tiles.

    parts_ptr: Two tiles for each program. The first is for a share that starts in the middle of the output tile, the
    second for a share that has the tile's first k-tile but not its last. counters_ptr: a zero for each output tile.
    """
    # TODO: for each output tile in this program's share: multiply, store a part, count it, add if it is the last


def stream_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("TODO: launch one program per SM, with a workspace and counters, then delete this line")
    (m, k), n = a.shape, len(b)
    out = a.new_empty(m, n)
    programs = torch.cuda.get_device_properties(a.device if a.is_cuda else None).multi_processor_count
    return out
