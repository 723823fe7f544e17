// Matrices are stored in row-major order:
// M(row, col) = *(M.elements + row * M.width + col)
typedef struct {
    int height;
    int width;
    float* elements;
} Matrix;

__device__ void MatMul(Matrix A, Matrix B, Matrix C)
{
    // Each thread computes one element of C by accumulating results into Cvalue
    float Cvalue = 0;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= C.height || col >= C.width) return;
    for (int e = 0; e < A.width; ++e)
        Cvalue += A.elements[row * (long)A.width + e] * B.elements[e * (long)B.width + col];
    C.elements[row * (long)C.width + col] = Cvalue;
}

__global__ void MatMulKernel(int ah, int aw, float* a, int bh, int bw, float* b, int ch, int cw, float* c)
{
    MatMul({ah, aw, a}, {bh, bw, b}, {ch, cw, c});
}
