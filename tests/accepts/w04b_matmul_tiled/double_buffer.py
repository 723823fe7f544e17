"""Two stages of shared memory filled by cp.async, the tile after the one that is multiplied."""

import torch

from kernelpath.lanes import cuda


class Matmul:
    tile, stages = 32, 2

    def grid(self, m, n):
        return (n + self.tile - 1) // self.tile, (m + self.tile - 1) // self.tile

    def run(self, a, b):
        m, n, k = a.shape[0], b.shape[1], a.shape[1]
        out = torch.empty(m, n, device=a.device)
        name = f"double_buffered<{self.tile}, {self.stages}>"
        cuda.kernel("double_buffer.cu", name)[self.grid(m, n), (32, 8)](a, b, out, m, n, k)
        return out


matmul = Matmul().run
