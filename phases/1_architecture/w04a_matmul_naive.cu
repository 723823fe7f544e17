// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// Each thread computes one element of out. All three matrices are contiguous and row-major.

__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    // TODO: find this thread's row and column; which of the two should neighboring threads share?
}
