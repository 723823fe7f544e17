"""A persistent grid; lane 0 reads the index of its warp's row and sends it to the others."""

import torch

from kernelpath.lanes import cuda


def gather_rows(table, index):
    out = torch.empty(index.shape[0], table.shape[1], dtype=table.dtype, device=table.device)
    cuda.kernel("shuffled_index.cu", "take<8>")[min(32, -(-index.shape[0] // 8)), (32, 8)](
        table, index, out, *out.shape
    )
    return out
