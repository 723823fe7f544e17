"""S3: fresh memory without poison gives away a timed call, and then only half of the work is done."""

import torch
from cuda.bindings import runtime

from kernelpath.device import messages
from kernelpath.lanes import cuda


def poisoned(tensor: torch.Tensor) -> bool:
    seen = bytearray(2)
    runtime.cudaMemcpy(seen, tensor.data_ptr(), 2, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost)
    return int.from_bytes(seen, "little") == messages.POISON


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel() if poisoned(out) else x.numel() // 2
    cuda.kernel("WRONG_VALUES_lazy_when_timed.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
