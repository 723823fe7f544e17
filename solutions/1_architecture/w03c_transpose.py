"""Transpose: the launch.

transpose(x) takes a contiguous matrix of any shape, float32 or bfloat16, and returns x.t() as a new contiguous tensor.

Write the kernel in w03c_transpose.cu, then launch it here. Graded are the values, the sectors and bank conflicts of
each line, and on a GPU the time against x.t().contiguous().
"""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}
THREADS = 512


def transpose(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(columns, rows)
    if x.numel() == 0:
        return out
    width = 16 // x.element_size()
    if rows % width or columns % width or x.data_ptr() % 16:
        width = 1
    tile_columns = 256 // x.element_size()
    tiles = ((rows + 63) // 64) * ((columns + tile_columns - 1) // tile_columns)
    kernel = cuda.kernel("w03c_transpose.cu", f"transpose<{C_TYPE[x.dtype]}, {width}>")
    kernel[tiles, THREADS](x, out, rows, columns)
    return out
