// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.

__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    // TODO: for each step along k: tiles of a and b to shared memory, values of them to registers, multiply each with each
}
