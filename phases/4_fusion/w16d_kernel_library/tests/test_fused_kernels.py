"""Values and gradients against float64, strides, and what is refused."""

import fused_kernels
import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# TODO: the tests
