"""NumPy's views: the offsets of a matrix are what stride tricks see in a count of all elements."""

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided


def view(shape, strides):
    count = np.arange(1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)))
    return as_strided(count, shape, [8 * stride for stride in strides])


def offsets(name, matrix):
    m, n = matrix.shape
    if name == "tiled":
        table = view((m // 4, 4, n // 8, 8), (4 * n, 8, 32, 1)).reshape(m, n)
    elif name == "thread_values":
        table = view((m, n // 4, 4), (4, 4 * m, 1)).reshape(m, n)
    else:
        strides = {"row_major": (n, 1), "column_major": (1, m), "padded": (n + 1, 1), "broadcast": (0, 1)}
        table = view((m, n), strides[name])
    out = np.empty((m, n), dtype=np.int64)
    out[:] = table
    return torch.from_numpy(out).to(matrix.device)
