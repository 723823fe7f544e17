"""PyTorch's elementwise kernel: a functor, four elements a thread, and offsets in 32 bits where they do."""

import torch

from kernelpath.lanes import cuda

num_threads, thread_work_size = 128, 4


def vector_add(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(self)
    N = self.numel()
    index_t = "int32_t" if N < 2**31 else "int64_t"
    name = f"elementwise_kernel<{num_threads}, {thread_work_size}, CUDAFunctor_add<float>, {index_t}>"
    block_work_size = num_threads * thread_work_size
    grid = (N + block_work_size - 1) // block_work_size
    cuda.kernel("pytorch_elementwise.cu", name)[grid, num_threads](N, result, self, other)
    return result
