"""CUB's BlockReduce over tiles of 8 floats per thread; a ticket of libcu++ that torch zeroes for every call."""

import torch

from kernelpath.lanes import cuda

THREADS, ITEMS = 128, 8


def vector_sum(x: torch.Tensor) -> torch.Tensor:
    n = x.numel()
    blocks = min(-(-n // (THREADS * ITEMS)), 512)
    partials = torch.empty(blocks, dtype=torch.float32, device=x.device)
    ticket = torch.zeros(1, dtype=torch.int32, device=x.device)
    out = torch.empty(1, dtype=torch.float32, device=x.device)
    kernel = cuda.kernel("cub_block.cu", f"sum_kernel<{THREADS}, {ITEMS}>")
    kernel[blocks, THREADS](x, partials, ticket, out, n, blocks)
    return out
