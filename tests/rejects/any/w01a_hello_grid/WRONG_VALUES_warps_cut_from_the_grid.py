"""An accident: warp and lane are counted over the grid, as if a warp could hold threads of two blocks."""

import torch

from kernelpath.lanes import cuda


def hello_grid(blocks: int, threads: int, device: torch.device) -> torch.Tensor:
    out = torch.empty(4, blocks * threads, dtype=torch.int32, device=device)
    cuda.kernel("WRONG_VALUES_warps_cut_from_the_grid.cu", "hello_grid")[blocks, threads](out)
    return out
