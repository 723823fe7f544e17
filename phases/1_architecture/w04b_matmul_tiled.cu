// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// A block computes a tile of out. It moves along k and keeps a tile of a and a tile of b in shared memory, where many
// threads use each element. m, n and k may have any value, so tiles may extend beyond the edges.

__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    // TODO: for each step along k: load a tile of a and one of b into shared memory, wait, multiply, wait
}
