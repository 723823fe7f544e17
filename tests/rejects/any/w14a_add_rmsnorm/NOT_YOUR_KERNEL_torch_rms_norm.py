"""S1: PyTorch's operators do the work."""

import torch


def add_rmsnorm(x, residual, weight):
    h = x + residual
    return torch.nn.functional.rms_norm(h, (h.shape[1],), weight, 1e-6), h
