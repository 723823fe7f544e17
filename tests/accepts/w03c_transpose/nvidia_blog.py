"""NVIDIA's "An efficient matrix transpose": TILE_DIM, BLOCK_ROWS, a tile with a column more."""

import torch

from kernelpath.lanes import cuda

TILE_DIM, BLOCK_ROWS = 32, 8
NAMES = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def transpose(idata: torch.Tensor) -> torch.Tensor:
    height, width = idata.shape
    odata = torch.empty(width, height, dtype=idata.dtype, device=idata.device)
    dimGrid = (-(-width // TILE_DIM), -(-height // TILE_DIM), 1)
    dimBlock = (TILE_DIM, BLOCK_ROWS, 1)
    kernel = cuda.kernel("nvidia_blog.cu", f"transposeNoBankConflicts<{NAMES[idata.dtype]}>")
    kernel[dimGrid, dimBlock](odata, idata, width, height)
    return odata
