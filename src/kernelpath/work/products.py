"""Matrix products that a statement leaves to torch.mm: a library's on a GPU, a kernel's of ours on the PTX machine.

So they are launches like any other, in the transcript too: the host computes nothing.
"""

from __future__ import annotations

import torch

from kernelpath.lanes import cuda
from kernelpath.work.messages import PRODUCT

_TILE = 16

_SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

// out = a @ b, a tile of 16 x 16 for each block of one warp. Operands have any strides, and out is contiguous.
extern "C" __global__ void library_product(const ELEMENT* a, const ELEMENT* b, ELEMENT* out, int m, int n, int k,
                                           long long a_row, long long a_column, long long b_row, long long b_column) {
    __shared__ alignas(32) ELEMENT left[16][16], right[16][16];
    __shared__ alignas(32) float sum[16][16];
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, ELEMENT, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, ELEMENT, wmma::row_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> total;
    wmma::fill_fragment(total, 0.0f);
    for (int first = 0; first < k; first += 16) {
        for (int i = threadIdx.x; i < 256; i += 32) {
            const int r = i / 16, c = i % 16;
            const bool inside_a = row + r < m && first + c < k, inside_b = first + r < k && column + c < n;
            left[r][c] = inside_a ? a[(row + r) * a_row + (first + c) * a_column] : ELEMENT(0.0f);
            right[r][c] = inside_b ? b[(first + r) * b_row + (column + c) * b_column] : ELEMENT(0.0f);
        }
        __syncwarp();
        wmma::load_matrix_sync(x, &left[0][0], 16);
        wmma::load_matrix_sync(y, &right[0][0], 16);
        wmma::mma_sync(total, x, y, total);
        __syncwarp();
    }
    wmma::store_matrix_sync(&sum[0][0], total, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) {
        const int r = row + i / 16, c = column + i % 16;
        if (r < m && c < n) out[(long long)r * n + c] = ELEMENT(sum[i / 16][i % 16]);
    }
}
"""

KERNELS = {
    dtype: cuda.Kernel("library_product.cu", _SOURCE, PRODUCT, (f"-DELEMENT={name}",))
    for dtype, name in ((torch.bfloat16, "__nv_bfloat16"), (torch.float16, "__half"))
}
"""By the dtypes whose products a statement may leave to a library."""


def runs_on_simulator(args: tuple[object, ...]) -> bool:
    """Whether `multiply` takes them: matrices of the host, all of them bfloat16 or all of them float16."""
    found = {(one.device.type, one.dtype) if isinstance(one, torch.Tensor) else None for one in args}
    return len(found) == 1 and found <= {("cpu", dtype) for dtype in KERNELS}


def multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """out = a @ b, (m, k) by (k, n) with float32 sums.

    Raises ValueError unless out is a contiguous matrix (m, n).
    """
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k or out.shape != (m, n) or not out.is_contiguous():
        shapes = f"{tuple(a.shape)} by {tuple(b.shape)} into {tuple(out.shape)}"
        raise ValueError(f"torch.mm: {shapes}; the shapes have to fit, and out to be contiguous")
    blocks = (-(-n // _TILE), -(-m // _TILE))
    KERNELS[a.dtype][blocks, 32](a, b, out, m, n, k, *a.stride(), *b.stride())
