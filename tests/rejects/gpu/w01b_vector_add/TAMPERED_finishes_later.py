"""T2: the entry returns at once, and a thread of the host launches the kernel when the clock has stopped."""

import threading
import time

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()

    def finish() -> None:
        time.sleep(1)
        cuda.kernel("TAMPERED_finishes_later.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)

    threading.Thread(target=finish).start()
    return out
