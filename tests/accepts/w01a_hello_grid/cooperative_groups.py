"""Nothing but cooperative groups: the grid, the block and its tiles say who a thread is."""

import torch

from kernelpath.lanes import cuda

hello = cuda.kernel("cooperative_groups.cu", "hello")


def hello_grid(blocks: int, threads: int, device: torch.device) -> torch.Tensor:
    out = torch.empty(4, blocks * threads, dtype=torch.int32, device=device)
    hello[blocks, threads](out)
    return out
