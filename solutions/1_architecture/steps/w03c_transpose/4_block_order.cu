// Block order: blocks that run together go down the columns of in, so they store along the rows of out.

template <int WIDTH, int LOADS>
__global__ void transpose(const float* in, float* out, int rows, int cols) {
    constexpr int STEP = WIDTH / LOADS;
    __shared__ float tile[WIDTH][WIDTH + 1];
    int row = blockIdx.x * WIDTH + threadIdx.y, col = blockIdx.y * WIDTH + threadIdx.x;
    #pragma unroll
    for (int k = 0; k < WIDTH; k += STEP) tile[threadIdx.y + k][threadIdx.x] = in[(row + k) * cols + col];
    __syncthreads();
    row = blockIdx.y * WIDTH + threadIdx.y, col = blockIdx.x * WIDTH + threadIdx.x;  // of out
    #pragma unroll
    for (int k = 0; k < WIDTH; k += STEP) out[(row + k) * rows + col] = tile[threadIdx.x][threadIdx.y + k];
}
