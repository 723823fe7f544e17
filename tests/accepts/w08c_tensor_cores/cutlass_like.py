"""CUTLASS's layers by hand: shapes as types, swizzled tiles, ldmatrix, mma.sync, an epilogue of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernelpath.lanes import cuda


@dataclass(frozen=True)
class GemmShape:
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"gemm::GemmShape<{self.m}, {self.n}, {self.k}>"


THREADBLOCK, WARP = GemmShape(128, 128, 64), GemmShape(64, 32, 64)
ELEMENT = {"torch.bfloat16": "__nv_bfloat16", "torch.float16": "__half"}


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), (_, n) = a.shape, b.shape
    d = torch.empty((m, n), device=a.device, dtype=a.dtype)
    operator = f"gemm::Gemm<{ELEMENT[str(a.dtype)]}, {THREADBLOCK}, {WARP}>"
    threads = (THREADBLOCK.m // WARP.m) * (THREADBLOCK.n // WARP.n) * 32
    grid = ((n + THREADBLOCK.n - 1) // THREADBLOCK.n, (m + THREADBLOCK.m - 1) // THREADBLOCK.m, 1)
    cuda.kernel("cutlass_like.cu", f"device_kernel<{operator}>")[grid, (threads, 1, 1)](a, b, d, m, n, k)
    return d
