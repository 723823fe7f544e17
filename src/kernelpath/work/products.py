"""Compute the matrix products that a statement leaves to torch.mm: by a library on a GPU, by a kernel on the PTX
machine.

On the PTX machine they are launches like any other, in the transcript as well: the host computes nothing.
"""

from __future__ import annotations

import torch

from kernelpath.work.messages import PRODUCT
from warpcheck.frontends import cuda

_TILE = 16

_SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

// out = a @ b. Each block is one warp and computes a tile of 16 x 16. Operands have any strides, out is contiguous.
extern "C" __global__ void library_product(const ELEMENT* a, const ELEMENT* b, ELEMENT* out, int m, int n, int k,
                                           long long a_row, long long a_column, long long b_row, long long b_column) {
    __shared__ alignas(32) ELEMENT smem_a[16][16], smem_b[16][16];
    __shared__ alignas(32) float smem_out[16][16];
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, ELEMENT, wmma::row_major> frag_a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, ELEMENT, wmma::row_major> frag_b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.0f);
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int i = threadIdx.x; i < 256; i += 32) {
            const int r = i / 16, c = i % 16;
            const bool inside_a = row + r < m && k0 + c < k, inside_b = k0 + r < k && column + c < n;
            smem_a[r][c] = inside_a ? a[(row + r) * a_row + (k0 + c) * a_column] : ELEMENT(0.0f);
            smem_b[r][c] = inside_b ? b[(k0 + r) * b_row + (column + c) * b_column] : ELEMENT(0.0f);
        }
        __syncwarp();
        wmma::load_matrix_sync(frag_a, &smem_a[0][0], 16);
        wmma::load_matrix_sync(frag_b, &smem_b[0][0], 16);
        wmma::mma_sync(acc, frag_a, frag_b, acc);
        __syncwarp();  // before the next tile overwrites shared memory
    }
    wmma::store_matrix_sync(&smem_out[0][0], acc, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) {
        const int r = row + i / 16, c = column + i % 16;
        if (r < m && c < n) out[(long long)r * n + c] = ELEMENT(smem_out[i / 16][i % 16]);
    }
}
"""

# The kernels by dtype. These are the dtypes whose products a statement may leave to a library.
KERNELS = {
    dtype: cuda.Kernel("library_product.cu", _SOURCE, PRODUCT, (f"-DELEMENT={name}",))
    for dtype, name in ((torch.bfloat16, "__nv_bfloat16"), (torch.float16, "__half"))
}


def runs_on_simulator(args: tuple[object, ...]) -> bool:
    """Return whether `multiply` accepts these tensors: matrices of the host, all bfloat16 or all float16."""
    kinds = {(value.device.type, value.dtype) if isinstance(value, torch.Tensor) else None for value in args}
    return len(kinds) == 1 and kinds <= {("cpu", dtype) for dtype in KERNELS}


def multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Compute out = a @ b, (m, k) by (k, n), with float32 sums.

    Raises ValueError unless out is a contiguous matrix (m, n).
    """
    m, k = a.shape
    n = b.shape[1]
    if b.shape[0] != k or out.shape != (m, n) or not out.is_contiguous():
        shapes = f"{tuple(a.shape)} by {tuple(b.shape)} into {tuple(out.shape)}"
        raise ValueError(f"torch.mm: {shapes}; the shapes have to fit, and out to be contiguous")
    blocks = (-(-n // _TILE), -(-m // _TILE))
    KERNELS[a.dtype][blocks, 32](a, b, out, m, n, k, *a.stride(), *b.stride())
