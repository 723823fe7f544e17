"""S1: a thread of its own lets PyTorch do the work, where no operator is seen; a copy is launched for show."""

import threading

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    sums: list[torch.Tensor] = []
    worker = threading.Thread(target=lambda: sums.append(torch.add(x, y)))
    worker.start()
    worker.join()
    n = x.numel()
    cuda.kernel("NOT_YOUR_KERNEL_library_in_a_thread.cu", "copy")[(n + 255) // 256, 256](sums[0], out, n)
    return out
