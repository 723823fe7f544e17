"""S1, an accident: the entry lets PyTorch do the work."""

import torch


def layernorm(x, weight, bias, eps):
    y, mean, rstd = torch.native_layer_norm(x, (x.shape[1],), weight, bias, eps)
    return y, mean.flatten().float(), rstd.flatten().float()
