"""The kernel is given a table of the tensors' addresses, as batched BLAS and multi-tensor optimizers are."""

import torch

from kernelpath.lanes import cuda

add_by_table = cuda.kernel("pointer_table.cu", "add_by_table")


def vector_add(x, y):
    out = torch.empty_like(x)
    table = torch.tensor([t.data_ptr() for t in (x, y, out)], dtype=torch.int64).to(x.device)
    add_by_table[-(-x.numel() // 1024), 256](table, x.numel())
    return out
