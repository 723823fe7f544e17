"""llm.c's encoder: float4 where the rows allow it, packed 128 bits a thread, a warp to a row."""

import torch

from kernelpath.lanes import cuda


def gather_rows(wte: torch.Tensor, inp: torch.Tensor) -> torch.Tensor:
    BT, C = inp.shape[0], wte.shape[1]
    out = torch.empty(BT, C, device=wte.device)
    packed = C % 4 == 0 and wte.data_ptr() % 16 == 0
    block_size = 256
    grid_size = (BT * 32 + block_size - 1) // block_size
    kernel = cuda.kernel(
        "llmc_encoder.cu", "encoder_forward_kernel<float4>" if packed else "encoder_forward_kernel<float>"
    )
    kernel[grid_size, block_size](out, inp, wte, BT, C)
    return out
