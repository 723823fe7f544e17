#ifndef BLOCK_SIZE
#define BLOCK_SIZE 16
#endif

typedef struct {
    int width, height, stride;
    const float* elements;
} Matrix;

// Get a matrix element; outside of the matrix all is zero
__device__ float GetElement(const Matrix A, int row, int col)
{
    return row < A.height && col < A.width ? A.elements[(size_t)row * A.stride + col] : 0.0f;
}

__global__ void MatMulKernel(const float* a, const float* b, float* c, int m, int n, int k)
{
    const Matrix A = {k, m, k, a}, B = {n, k, n, b};
    int row = threadIdx.y, col = threadIdx.x;
    int cRow = blockIdx.y * BLOCK_SIZE + row, cCol = blockIdx.x * BLOCK_SIZE + col;
    float Cvalue = 0;
    for (int m0 = 0; m0 < k; m0 += BLOCK_SIZE) {
        // Shared memory used to store Asub and Bsub respectively
        __shared__ float As[BLOCK_SIZE][BLOCK_SIZE];
        __shared__ float Bs[BLOCK_SIZE][BLOCK_SIZE];
        As[row][col] = GetElement(A, cRow, m0 + col);
        Bs[row][col] = GetElement(B, m0 + row, cCol);
        __syncthreads();
        for (int e = 0; e < BLOCK_SIZE; ++e)
            Cvalue += As[row][e] * Bs[e][col];
        __syncthreads();
    }
    if (cRow < m && cCol < n) c[(size_t)cRow * n + cCol] = Cvalue;
}
