"""As in NVIDIA's samples: C headers, a macro for errors that stays unused, one flat index."""

import torch

from kernelpath.lanes import cuda


def hello_grid(blocks: int, threads: int, device: torch.device) -> torch.Tensor:
    d_out = torch.empty((4, blocks * threads), dtype=torch.int32, device=device)
    cuda.kernel("nvidia_sample.cu", "helloGrid")[(blocks, 1, 1), (threads, 1, 1)](d_out, blocks * threads)
    return d_out
