"""An accident that costs time alone: the lanes of a warp are in 32 different rows."""

import torch

from kernelpath.lanes import cuda


def gather_rows(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    rows, columns = index.numel(), table.shape[1]
    out = table.new_empty(rows, columns)
    kernel = cuda.kernel("TOO_MUCH_TRAFFIC_a_thread_a_row.cu", "gather_rows")
    kernel[(rows + 255) // 256, 256](table, index, out, rows, columns)
    return out
