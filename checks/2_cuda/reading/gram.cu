// Launch: <<<1, (16, 16)>>> float x[640], float out[256], int k = 40
__global__ void kernel(const float* x, float* out, int k) {
    __shared__ float tile[16][16];
    const int column = threadIdx.x, row = threadIdx.y;
    float sum = 0;
    for (int begin = 0; begin < k; begin += 16) {
        tile[row][column] = x[row * k + begin + column];
        __syncthreads();
        for (int j = 0; j < 16; ++j)
            sum += tile[row][j] * tile[column][j];
        __syncthreads();
    }
    out[row * 16 + column] = sum;
}
