"""An accident: each row of the table is sent where it is wanted, which is one place: an index may come twice."""

import torch

from kernelpath.lanes import cuda

FILE = "NOT_WRITTEN_index_served_once.cu"


def gather_rows(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    rows, columns = index.numel(), table.shape[1]
    out = table.new_empty(rows, columns)
    wanted_by = torch.full((len(table),), -1, dtype=torch.int32, device=table.device)
    cuda.kernel(FILE, "invert")[(rows + 255) // 256, 256](index, wanted_by, rows)
    cuda.kernel(FILE, "scatter_rows")[(len(table) + 7) // 8, 256](table, wanted_by, out, len(table), columns)
    return out
