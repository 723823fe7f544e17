"""The programming guide's MatMul with shared memory: GetElement, SetElement, BLOCK_SIZE as a macro."""

import torch

from kernelpath.lanes import cuda

BLOCK_SIZE = 32


def matmul(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    C = torch.empty(A.shape[0], B.shape[1], device=A.device)
    kernel = cuda.kernel("programming_guide.cu", "MatMulKernel", (f"-DBLOCK_SIZE={BLOCK_SIZE}",))
    dimGrid = [-(-C.shape[1] // BLOCK_SIZE), -(-C.shape[0] // BLOCK_SIZE)]
    kernel[dimGrid, [BLOCK_SIZE, BLOCK_SIZE]](A, B, C, A.shape[0], B.shape[1], A.shape[1])
    return C
