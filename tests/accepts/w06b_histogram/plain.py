"""As a learner writes it: counters of a block in shared memory, and twice through x where they do not all fit."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.uint8: "unsigned char", torch.int32: "int"}


def histogram(x: torch.Tensor, bins: int) -> torch.Tensor:
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    n = x.numel()
    slice = min(bins, 32_768)
    blocks = min(264, (n + 4095) // 4096)
    kernel = cuda.kernel("plain.cu", f"histogram<{C_TYPE[x.dtype]}>")
    kernel[(blocks, (bins + slice - 1) // slice), 512, 4 * slice](x, counts, n, bins, slice)
    return counts
