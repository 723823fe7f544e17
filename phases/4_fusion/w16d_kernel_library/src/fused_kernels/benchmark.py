"""Time the functions and PyTorch's own operators: python -m fused_kernels.benchmark."""

import statistics
import time

import torch
import torch.nn.functional as F

import fused_kernels


def measure(function: str, rows: int, columns: int, repeats: int = 5) -> dict[str, float]:
    raise NotImplementedError("TODO: time the function, and PyTorch's operators")
