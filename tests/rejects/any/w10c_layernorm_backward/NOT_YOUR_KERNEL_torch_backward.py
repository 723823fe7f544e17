"""S1, an accident: the entry lets PyTorch do the work."""

import torch


def layernorm_backward(dy, x, weight, mean, rstd):
    kept = (mean[:, None].to(x.dtype), rstd[:, None].to(x.dtype)) if x.device.type == "cpu" else (mean, rstd)
    return torch.ops.aten.native_layer_norm_backward(dy, x, x.shape[1:], *kept, weight, weight, [True, True, True])
