// Matrix product: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.

__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    // TODO: begin the copies of the first stages; then, step by step: wait for the oldest stage, begin a copy, multiply
}
