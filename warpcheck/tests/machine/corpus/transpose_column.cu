// grid 4 4, block 32 8, n 128: 32 x 32 tiles, 4 neighboring rows of each thread, no padding
extern "C" __global__ void transpose_column(const float* a, const int* c, float* b, int n) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y * 4;
#pragma unroll
    for (int j = 0; j < 4; j++) tile[threadIdx.y * 4 + j][threadIdx.x] = a[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y * 4;
#pragma unroll
    for (int j = 0; j < 4; j++) b[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y * 4 + j];
}
