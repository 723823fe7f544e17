"""Cooperative groups: reduce over tiles of 32, and grid.sync() before block 0 adds the sums of the blocks."""

import torch

from kernelpath.lanes import cuda

reduce_kernel = cuda.kernel("cooperative_grid.cu", "grid_reduce<512>", cooperative=True)


def vector_sum(x):
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    blocks = max(1, min(processors, x.numel() // 4096))
    sums, out = x.new_empty(blocks), x.new_empty(1)
    reduce_kernel[blocks, 512](x, sums, out, x.numel())
    return out
