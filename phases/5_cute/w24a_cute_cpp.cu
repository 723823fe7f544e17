// GEMM on tensor cores in C++, with CuTe: out[row, column] = sum over i of a[row, i] * b[i, column]. a (m x k) and
// out (m x n) are row-major, b (k x n) is column-major. All are bfloat16, the accumulators float32. n and k are multiples of 8.

#include <cute/tensor.hpp>

using namespace cute;

// TODO: the atoms: a 16-byte cp.async, ldmatrix, mma.sync; layouts of a stage, and of the rows that lanes address for ldmatrix

template <int ROWS, int COLUMNS, int WARP_ROWS, int WARP_COLUMNS>  // the tile of out per block, and per warp
__global__ void __launch_bounds__(ROWS / WARP_ROWS * (COLUMNS / WARP_COLUMNS) * 32)
matmul(const bfloat16_t* a, const bfloat16_t* b, bfloat16_t* out, int m, int n, int k) {
    // TODO: tensors of global memory, and of a ring of stages in shared memory
    // TODO: for each stage along k: fetch a later one, wait, load fragments, multiply
    // TODO: round the accumulators; store whole rows
}
