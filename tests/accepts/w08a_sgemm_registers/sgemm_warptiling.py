"""As SGEMM_CUDA's warp tiles: everything a template's number, a warp's tile in parts, the compiler unrolls."""

import torch

from kernelpath.lanes import cuda

NUM_THREADS, BN, BM, BK, WN, WM, WNITER, TN, TM = 128, 128, 128, 16, 64, 64, 4, 4, 8


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    aligned = n % 4 == 0 and k % 4 == 0 and a.data_ptr() % 16 == 0 and b.data_ptr() % 16 == 0
    name = f"sgemmWarptiling<{BM}, {BN}, {BK}, {WM}, {WN}, {WNITER}, {TM}, {TN}, {NUM_THREADS}, {str(aligned).lower()}>"
    kernel = cuda.kernel("sgemm_warptiling.cu", name)
    kernel[((n + BN - 1) // BN, (m + BM - 1) // BM), NUM_THREADS](m, n, k, a, b, out)
    return out
