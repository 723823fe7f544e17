// GEMM on tensor cores in C++, with CuTe: out[row, column] = sum over i of a[row, i] * b[i, column]. a is m x k by
// rows, b is k x n by columns, out is m x n by rows. They are bfloat16, the sums float32; n and k are multiples of 8.

#include <cute/tensor.hpp>

using namespace cute;

// TODO: the atoms: a 16-byte cp.async, ldmatrix, mma.sync; layouts of a stage, and of the rows that lanes name to ldmatrix

template <int ROWS, int COLUMNS, int WARP_ROWS, int WARP_COLUMNS>  // of out: what a block makes, and a warp
__global__ void __launch_bounds__(ROWS / WARP_ROWS * (COLUMNS / WARP_COLUMNS) * 32)
matmul(const bfloat16_t* a, const bfloat16_t* b, bfloat16_t* out, int m, int n, int k) {
    // TODO: tensors of global memory, and of a ring of stages in shared memory
    // TODO: for each stage along k: fetch a later one, wait, take fragments, multiply
    // TODO: round the sums; whole rows go out
}
