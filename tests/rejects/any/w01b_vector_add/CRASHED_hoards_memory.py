"""H2: host memory is taken until there is none."""

import numpy
import torch


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    hoard = []
    while True:
        hoard.append(numpy.empty(1 << 25))
