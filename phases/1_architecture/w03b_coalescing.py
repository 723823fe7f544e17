"""Coalescing: the launch.

gather_rows(table, index) takes a contiguous float32 table of any shape and a vector of int64 indices, and returns the
rows table[index] as a new contiguous tensor. An embedding layer does this for its tokens. An index may occur more than
once, and the table is not always aligned to 16 bytes. Rows are copied bit for bit. Tensors may have more than 2**32
elements, so offsets need 64 bits.

Write the kernel in w03b_coalescing.cu, then launch it here. The grader checks the values, the sectors that each line
requests, and, on a GPU, the time compared with a kernel with one thread per row.

The grader enforces these limits on the largest case (table=300 rows=256 columns=512); smaller cases get some slack for
partial tiles. Each load or store may touch at most 1.1 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.2 times the size of the inputs and outputs.
"""

import torch

from kernelpath.lanes import cuda

THREADS = 256


def gather_rows(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    rows, columns = index.numel(), table.shape[1]
    out = table.new_empty(rows, columns)
    # TODO: how many blocks does it take, if each warp has a row? Then launch:
    # TODO: cuda.kernel("w03b_coalescing.cu", "gather_rows")[blocks, THREADS](table, index, out, rows, columns)
    raise NotImplementedError("launch the kernel, then return out")
