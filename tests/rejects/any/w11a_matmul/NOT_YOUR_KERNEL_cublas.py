"""S1: cuBLAS does the work."""

import torch

ACTIVATIONS = {"none": lambda x: x, "relu": torch.relu, "gelu": torch.nn.functional.gelu}


def matmul(a, b, bias, activation):
    return ACTIVATIONS[activation](a @ b if bias is None else torch.addmm(bias, a, b))
