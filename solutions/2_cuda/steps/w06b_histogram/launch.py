"""Launch histograms of bytes with a copy of the counters per block, warp, or lane. Lengths are multiples of 16."""

import torch

from kernelpath.lanes import cuda


def block(x: torch.Tensor, constant: bool = True) -> torch.Tensor:
    """Count with one copy of the counters per block. `constant`: add the constant 1, otherwise an argument."""
    return _launch("1_block.cu", x, constant)


def warp(x: torch.Tensor, constant: bool = True) -> torch.Tensor:
    """Count with a copy of the counters per warp."""
    return _launch("2_warp.cu", x, constant)


def lane(x: torch.Tensor, constant: bool = True) -> torch.Tensor:
    """Count with a copy of the counters per lane, which the warps of a block share."""
    return _launch("3_lane.cu", x, constant)


def _launch(file: str, x: torch.Tensor, constant: bool) -> torch.Tensor:
    vectors = x.numel() // 16
    counts = torch.zeros(256, dtype=torch.int32, device=x.device)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 8
    blocks = min((vectors + 1023) // 1024, 2 * processors)
    cuda.kernel(file, f"histogram<{str(constant).lower()}>")[blocks, 1024](x, counts, vectors, 1)
    return counts
