// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.

__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    // TODO: in each step along k, load tiles of a and b to shared memory and values to registers, then multiply
}
