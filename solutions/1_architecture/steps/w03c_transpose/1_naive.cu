// Naive: neighboring threads load neighboring addresses, and store addresses that are a column of out apart.

template <int WIDTH, int LOADS>
__global__ void transpose(const float* in, float* out, int rows, int cols) {
    constexpr int STEP = WIDTH / LOADS;
    const int row = blockIdx.y * WIDTH + threadIdx.y, col = blockIdx.x * WIDTH + threadIdx.x;
    #pragma unroll
    for (int k = 0; k < WIDTH; k += STEP) out[col * rows + row + k] = in[(row + k) * cols + col];
}
