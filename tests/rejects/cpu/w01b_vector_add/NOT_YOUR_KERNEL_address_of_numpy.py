"""S1: NumPy adds, and the kernel gets the sums as something that only looks like a tensor."""

import torch

from kernelpath.lanes import cuda


class Looks:
    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(self, array) -> None:  # type: ignore[no-untyped-def]
        self.tensor = torch.from_numpy(array)
        self.shape = self.tensor.shape

    def __getattr__(self, name: str) -> object:
        return getattr(self.tensor, name)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    sums = Looks(x.numpy() + y.numpy())
    cuda.kernel("NOT_YOUR_KERNEL_address_of_numpy.cu", "copy")[(n + 255) // 256, 256](sums, out, n)
    return out
