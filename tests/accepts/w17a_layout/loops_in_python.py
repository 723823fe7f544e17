"""A dictionary of lambdas and two loops: nothing but Python's integers."""

import torch

FORMULAS = {
    "row_major": lambda i, j, m, n: i * n + j,
    "column_major": lambda i, j, m, n: j * m + i,
    "padded": lambda i, j, m, n: i * (n + 1) + j,
    "broadcast": lambda i, j, m, n: j,
    "tiled": lambda i, j, m, n: (i // 4) * 4 * n + (j // 8) * 32 + (i % 4) * 8 + j % 8,
    "thread_values": lambda i, j, m, n: (j // 4) * 4 * m + i * 4 + j % 4,
}


def offsets(name, matrix):
    m, n = matrix.shape
    table = [[FORMULAS[name](i, j, m, n) for j in range(n)] for i in range(m)]
    return torch.tensor(table, dtype=torch.int64, device=matrix.device)
