"""A class that compiles lazily; loads through the read-only cache, stores that stream past it."""

import torch

from kernelpath.lanes import cuda


class VectorAdd:
    block = 192

    @property
    def kernel(self):
        if not hasattr(self, "_kernel"):
            self._kernel = cuda.kernel("cache_hints.cu", "vecadd_u64", options=["--restrict"])
        return self._kernel

    def __call__(self, x, y):
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        self.kernel[1 + (x.numel() - 1) // self.block, self.block, 0](out, x, y, x.numel())
        return out


vector_add = VectorAdd().__call__
