"""Test values and gradients against float64, strides, and refused arguments."""

import fused_kernels
import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# TODO: the tests
