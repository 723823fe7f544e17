"""Launch the steps from a naive transpose to the answer. Matrices are float32, and multiples of the tile."""

import torch

from kernelpath.lanes import cuda


def naive(x: torch.Tensor, width: int = 32, loads: int = 4) -> torch.Tensor:
    """Transpose without shared memory. A thread loads `loads` elements, in blocks of `width` columns."""
    return _by_columns("1_naive.cu", x, width, loads)


def tile(x: torch.Tensor, width: int = 32, loads: int = 4) -> torch.Tensor:
    """Transpose through tiles of `width` x `width` in shared memory."""
    return _by_columns("2_tile.cu", x, width, loads)


def padding(x: torch.Tensor, width: int = 32, loads: int = 4) -> torch.Tensor:
    """Transpose through tiles whose rows are padded by one word."""
    return _by_columns("3_padding.cu", x, width, loads)


def block_order(x: torch.Tensor, width: int = 32, loads: int = 4) -> torch.Tensor:
    """Transpose through padded tiles, with blocks numbered along the columns of x."""
    rows, columns = x.shape
    return _launch("4_block_order.cu", x, (rows // width, columns // width), width, loads)


def _by_columns(file: str, x: torch.Tensor, width: int, loads: int) -> torch.Tensor:
    rows, columns = x.shape
    return _launch(file, x, (columns // width, rows // width), width, loads)


def _launch(file: str, x: torch.Tensor, grid: tuple[int, int], width: int, loads: int) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(columns, rows)
    kernel = cuda.kernel(file, f"transpose<{width}, {loads}>")
    kernel[grid, (width, width // loads)](x, out, rows, columns)
    return out
