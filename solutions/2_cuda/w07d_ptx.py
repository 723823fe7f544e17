"""PTX: the launch.

hardswish(x) takes a float32 matrix with fewer than 2**31 rows and fewer than 2**31 columns. Rows are contiguous, but
the row stride may exceed the row length: x[:, :100] of a wider matrix is a legal input. It returns x * min(max(x + 3,
0), 6) / 6 as a new contiguous tensor. x is not always aligned to 16 bytes. Tensors may have more than 2**32 elements,
so offsets need 64 bits.

The kernel in w07d_ptx.cu is correct. `kp profile ptx --sass` shows the compilers' output, line by line; rewrite the
kernel until they generate the code you want. The grader checks the values; that every load and store is 16 bytes wide,
if 16-byte accesses are possible in every row; that ptxas uses neither a stack frame nor spills; that at most 8 integer
instructions are executed per element (a division counts as 18, a 64-bit division as 80); and, on a GPU, the time
compared with the kernel as provided.

The grader enforces these limits on the largest case (rows=192 columns=1024 pad=8); smaller cases get some slack for
partial tiles. Each load or store may touch at most 1.1 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.1 times the size of the inputs and outputs. The kernel may execute at most 8 integer
instructions per output element. Each thread must load and store 16 bytes at a time.

Traffic: 8 bytes per element and 5 operations, so the kernel is memory-bound, and the ceiling is copy speed.
"""

import torch

from kernelpath.lanes import cuda

THREADS = (32, 8)
ROWS = 4  # per thread, so that the prologue is executed once per 16 elements
MAX_BLOCKS = 65_535  # along y


def hardswish(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    if out.numel() == 0:
        return out
    places = (columns, x.stride(0), x.data_ptr() // 4, out.data_ptr() // 4)
    vector, width = ("float4", 4) if all(place % 4 == 0 for place in places) else ("float", 1)
    tile_columns, tile_rows = THREADS[0] * width, THREADS[1] * ROWS
    grid = ((columns + tile_columns - 1) // tile_columns, min((rows + tile_rows - 1) // tile_rows, MAX_BLOCKS))
    cuda.kernel("w07d_ptx.cu", f"hardswish<{vector}>")[grid, THREADS](x, out, rows, columns, x.stride(0))
    return out
