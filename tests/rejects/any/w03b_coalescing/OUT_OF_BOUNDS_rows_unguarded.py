"""C10, an accident: the last block reads indices that are not there."""

import torch

from kernelpath.lanes import cuda


def gather_rows(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    rows, columns = index.numel(), table.shape[1]
    out = table.new_empty(rows, columns)
    kernel = cuda.kernel("OUT_OF_BOUNDS_rows_unguarded.cu", "gather_rows")
    kernel[(rows + 7) // 8, 256](table, index, out, rows, columns)
    return out
