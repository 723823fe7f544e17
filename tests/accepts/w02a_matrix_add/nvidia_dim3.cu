#define IDX(row, column, stride) ((size_t)(row) * (stride) + (column))

// Kernel definition
__global__ void MatAdd(const float *A, const float *B, float *C, int N, int M, long strideA, long strideB)
{
    // rows are along the grid's x, which has room for all of them
    int j = blockIdx.y * blockDim.y + threadIdx.x;
    int i = blockIdx.x * blockDim.x + threadIdx.y;
    if (i < N && j < M)
        C[IDX(i, j, M)] = A[IDX(i, j, strideA)] + B[IDX(i, j, strideB)];
}
