"""Transpose: the launch.

transpose(x) takes a contiguous matrix of any shape, float32 or bfloat16, and returns x.t() as a new contiguous tensor,
bit for bit. x is not always aligned to 16 bytes. Tensors may have more than 2**32 elements, so offsets need 64 bits.

Write the kernel in w03c_transpose.cu, then launch it here. The grader checks the values, the sectors and bank conflicts
of each line, and, on a GPU, the time compared with x.t().contiguous().

The grader enforces these limits on the largest case (rows=512 columns=1024 dtype=float32); smaller cases get some slack
for partial tiles. Each load or store may touch at most 1.1 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.1 times the size of the inputs and outputs. Bank conflicts may add at most 0.5
wavefronts per request.

Traffic: the kernel reads and writes each element once, which is 8 bytes per element in float32 and 4 in bfloat16, and
performs no arithmetic. The measured ceiling is a copy of the same size. Once both sides are coalesced, the kernel is
memory bound: one access of a warp reads two segments of 256 bytes, or writes four segments of 128 bytes.

At 8192 x 8192 in float32 on an H200, this kernel reaches 0.96 of copy speed. With one change at a time, tiles 128 bytes
wide reach 0.87, or 0.94 with 256 threads; four vectors per thread and 256 threads reach 0.96; one vector per thread and
1024 threads reach 0.83; and blocks that go across x instead of down reach 0.93.

The idea of the tile is from Ruetsch and Micikevicius, "Optimizing Matrix Transpose in CUDA" (2009). A swizzle replaces
their padding, which would break the alignment of 16-byte accesses.
"""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}
THREADS, ROWS, ROW_BYTES = 512, 64, 256  # the sizes of a block and its tile, as in the kernel


def transpose(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(columns, rows)
    if x.numel() == 0:
        return out
    width = 16 // x.element_size()
    if rows % width or columns % width or x.data_ptr() % 16:
        width = 1
    tiles = ceil_div(rows, ROWS) * ceil_div(columns, ROW_BYTES // x.element_size())
    kernel = cuda.kernel("w03c_transpose.cu", f"transpose<{C_TYPE[x.dtype]}, {width}>")
    kernel[tiles, THREADS](x, out, rows, columns)
    return out


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b
