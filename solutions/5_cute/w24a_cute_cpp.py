"""GEMM on tensor cores in C++ with CuTe: the launch.

matmul(a, b) takes a row-major a (m, k) and a column-major b (k, n), the transpose of a contiguous (n, k), both
bfloat16, and returns a @ b as a new contiguous bfloat16 tensor of shape (m, n). The accumulators are float32 and
rounded once. n and k are multiples of 8, and m is at least 1. Every tensor starts at a multiple of 16 bytes and has
fewer than 2**31 elements.

Write the kernel in w24a_cute_cpp.cu with CuTe's headers, which come with `pip install nvidia-cutlass`, then launch it
here. The grader checks the values (products of small integers exactly), the bytes moved and their sectors, and that
tensor cores compute the values. It detects races and counts bank conflicts. On a GPU, it compares the time with cuBLAS.

The grader enforces these limits on the largest case (m=256 n=256 k=256 dtype=bfloat16 layout=nt); smaller cases get
some slack for partial tiles. Each load or store may touch at most 2 times the sectors that its bytes require. In total,
global memory accesses may move at most 3.5 times the size of the inputs and outputs. Bank conflicts may add at most 1
wavefront per request. The multiply-adds must run on tensor cores.

Operations: 2 m n k, 137e9 at 4096^3. Traffic: tiles of R x C read 2 m n k (1 / R + 1 / C) bytes in all, most of them
from L2. The kernel is bound by the tensor cores. On Hopper, mma.sync stays below wgmma, for which the same headers have
atoms. On an H200, this kernel reaches 471 and 484 TFLOP/s at 4096^3 in two sessions, and cuBLAS reaches 740 and 762 in
the same rounds.

TiledCopy and TiledMMA derive the same partitions from the same atoms. Partitions that are spelled out by layouts, as
here, compile faster. NVRTC took 30 to 40 s of CPU time for a kernel with TiledCopy and TiledMMA, and 2 to 3 s for this
one.
"""

import torch

from kernelpath.lanes import cuda

DEPTH = 64
STAGES = 3

# Rows and columns of out per block, and per warp.
TILES = ((128, 256, 64, 64), (128, 128, 64, 64), (64, 64, 32, 32))

# Blocks that keep a large GPU busy: an A100 has 108 SMs, an H200 has 132.
ENOUGH = 100


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0 or k == 0:
        return out.zero_()
    shared = torch.cuda.get_device_properties(a.device).shared_memory_per_block_optin
    fitting = [tile for tile in TILES if shared_bytes(*tile) <= shared]  # the largest takes 144 KiB
    blocks = {tile: -(-m // tile[0]) * -(-n // tile[1]) for tile in fitting}
    tile = next((tile for tile in fitting if blocks[tile] >= ENOUGH), TILES[-1])
    rows, columns, warp_rows, warp_columns = tile
    kernel = cuda.kernel("w24a_cute_cpp.cu", f"matmul<{', '.join(map(str, tile))}>")
    threads = rows // warp_rows * (columns // warp_columns) * 32
    kernel[blocks[tile], threads, shared_bytes(*tile)](a, b, out, m, n, k)
    return out


def shared_bytes(rows: int, columns: int, *of_warp: int) -> int:
    return 2 * STAGES * DEPTH * (rows + columns)
