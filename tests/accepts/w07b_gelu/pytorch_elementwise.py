"""In the style of PyTorch: functors, vectors as wide as the addresses allow, a careful last block."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def can_vectorize_up_to(*tensors: torch.Tensor) -> int:
    for size in (4, 2):
        if all(tensor.data_ptr() % (size * tensor.element_size()) == 0 for tensor in tensors):
            return size
    return 1


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    size = can_vectorize_up_to(x, out)
    functor = "Tanh" if approximate == "tanh" else "Exact"
    name = f"vectorized_elementwise_kernel<{C_TYPE[x.dtype]}, {functor}, {size}>"
    blocks = (n + 256 * size - 1) // (256 * size)
    cuda.kernel("pytorch_elementwise.cu", name)[blocks, 128](n, x, out)
    return out
