"""The online normalizer of Milakov and Gimelshein: pairs of maximum and sum, reduced by CUB with an operator."""

import torch

from kernelpath.lanes import cuda


def softmax(x: torch.Tensor) -> torch.Tensor:
    V = x.shape[1]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    T = "float" if x.dtype == torch.float32 else "bfloat16_t"
    held = min(V, 24_576)
    kernel = cuda.kernel("online_normalizer.cu", f"online_softmax<256, {T}>")
    kernel[x.shape[0], 256, held * x.element_size()](x, y, V, held)
    return y
