"""Launch the steps from one output per thread to warp tiles, for square float32 matrices that are multiples of tiles.

The names come from https://github.com/siboehm/SGEMM_CUDA, whose kernels 2, 3, 4, 5, 6 and 10 are the same steps.
"""

import torch

from kernelpath.lanes import cuda


def naive(a: torch.Tensor, b: torch.Tensor, width: int = 32) -> torch.Tensor:
    """Multiply without shared memory, in blocks of `width` x `width` threads."""
    return _launch("1_naive.cu", f"matmul<{width}>", a, b, width, (width, width))


def tile(a: torch.Tensor, b: torch.Tensor, width: int = 32) -> torch.Tensor:
    """Multiply through tiles of `width` x `width`, with one output per thread."""
    return _launch("2_tile.cu", f"matmul<{width}>", a, b, width, (width, width))


def column(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply through tiles of 64. A thread computes 8 outputs of a column."""
    return _launch("3_column.cu", "matmul<64, 8>", a, b, 64, 512)


def outputs(a: torch.Tensor, b: torch.Tensor, width: int = 64, outputs: int = 4) -> torch.Tensor:
    """Multiply through tiles of `width`, with `outputs` x `outputs` outputs per thread."""
    return _launch("4_outputs.cu", f"matmul<{width}, {outputs}>", a, b, width, (width // outputs) ** 2)


def vectors(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply through tiles of 128 by 16-byte accesses, with 8 x 8 outputs per thread."""
    return _launch("5_vectors.cu", "matmul", a, b, 128, 256)


def warp_tiles(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply as `vectors` does, with 32 x 64 outputs per warp."""
    return _launch("6_warp_tiles.cu", "matmul", a, b, 128, 256)


def _launch(
    file: str, name: str, a: torch.Tensor, b: torch.Tensor, width: int, threads: int | tuple[int, int]
) -> torch.Tensor:
    n = a.shape[0]
    out = torch.empty_like(a)
    cuda.kernel(file, name)[(n // width, n // width), threads](a, b, out, n)
    return out
