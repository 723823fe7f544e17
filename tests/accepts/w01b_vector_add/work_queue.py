"""Persistent blocks that take tiles from a queue, whose counter is a workspace of torch."""

import torch

from kernelpath.lanes import cuda

TILE = 1024


def vector_add(x, y):
    out = torch.empty_like(x)
    queue = torch.zeros(1, dtype=torch.int32, device=x.device)
    tiles = -(-x.numel() // TILE)
    cuda.kernel("work_queue.cu", "add_from_queue")[min(tiles, 8), TILE // 4](x, y, out, queue, x.numel())
    return out
