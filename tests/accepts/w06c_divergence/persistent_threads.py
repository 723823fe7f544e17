"""As many warps as the GPU holds take 256 oscillators at a time from one queue, and refill their lanes."""

import torch

from kernelpath.lanes import cuda


def oscillate(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    queue = torch.zeros(1, dtype=torch.int32, device=x.device)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    cuda.kernel("persistent_threads.cu", "oscillate")[4 * processors, 256](x, steps, out, queue, x.numel())
    return out
