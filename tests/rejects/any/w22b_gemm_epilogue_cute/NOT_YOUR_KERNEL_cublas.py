"""S1: the library multiplies and adds the bias, and PyTorch's operators do the rest."""

import torch


def gemm_epilogue(a, b, bias, scale, residual):
    aux = torch.addmm(bias, a, b)
    out = torch.nn.functional.gelu(aux.float(), approximate="tanh") * scale[:, None] + residual
    return out.to(a.dtype), aux
