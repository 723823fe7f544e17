"""Index arithmetic without CuTe."""

import torch


def offsets(name: str, matrix: torch.Tensor) -> torch.Tensor:
    rows, columns = matrix.shape
    i, j = torch.meshgrid(*(torch.arange(n, device=matrix.device) for n in matrix.shape), indexing="ij")
    tile = i // 4 * (columns // 8) + j // 8
    return {
        "row_major": i * columns + j,
        "column_major": i + j * rows,
        "padded": i * (columns + 1) + j,
        "broadcast": 0 * i + j,
        "tiled": tile * 32 + i % 4 * 8 + j % 8,
        "thread_values": (j // 4 * rows + i) * 4 + j % 4,
    }[name]
