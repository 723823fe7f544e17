"""Launch the steps of a sum, from one atomic per block to a fixed order of additions, for multiples of the width."""

import torch

from kernelpath.lanes import cuda

THREADS = 256


def grid_stride(x: torch.Tensor, resident: int = 8) -> torch.Tensor:
    """Add 4 bytes at a time, with one load in flight per thread and `resident` blocks per SM."""
    out = x.new_zeros(1)
    cuda.kernel("1_grid_stride.cu", "vector_sum")[_blocks(x, 1, resident), THREADS](x, out, x.numel())
    return out


def bytes_in_flight(x: torch.Tensor, width: int = 4, loads: int = 4, resident: int = 4) -> torch.Tensor:
    """Add with `loads` loads of `width` floats in flight per thread, and one atomic per block."""
    out = x.new_zeros(1)
    kernel = cuda.kernel("2_bytes_in_flight.cu", f"vector_sum<{width}, {loads}>")
    kernel[_blocks(x, width * loads, resident), THREADS](x, out, x.numel() // width)
    return out


def second_launch(x: torch.Tensor, width: int = 4, loads: int = 4, resident: int = 4) -> torch.Tensor:
    """Add the sums of the blocks in a second launch."""
    blocks = _blocks(x, width * loads, resident)
    sums = x.new_empty(blocks)
    out = x.new_empty(1)
    cuda.kernel("3_second_launch.cu", f"vector_sum<{width}, {loads}>")[blocks, THREADS](x, sums, x.numel() // width)
    cuda.kernel("3_second_launch.cu", "vector_sum<1, 4>")[1, THREADS](sums, out, blocks)
    return out


def grid_barrier(x: torch.Tensor, width: int = 4, loads: int = 4, resident: int = 4) -> torch.Tensor:
    """Add the sums of the blocks behind a barrier of the grid."""
    out = x.new_empty(1)
    kernel = cuda.kernel("4_grid_barrier.cu", f"vector_sum<{width}, {loads}>", cooperative=True)
    kernel[_blocks(x, width * loads, resident), THREADS](x, out, x.numel() // width)
    return out


def last_block(x: torch.Tensor, width: int = 4, loads: int = 4, resident: int = 4) -> torch.Tensor:
    """Add the sums of the blocks in the block that finishes last."""
    out = x.new_empty(1)
    kernel = cuda.kernel("5_last_block.cu", f"vector_sum<{width}, {loads}>")
    kernel[_blocks(x, width * loads, resident), THREADS](x, out, x.numel() // width)
    return out


def _blocks(x: torch.Tensor, floats: int, resident: int) -> int:
    """Return the blocks of a launch in which a thread has `floats` floats in flight."""
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 8
    return min(-(-x.numel() // (THREADS * floats)), resident * processors)
