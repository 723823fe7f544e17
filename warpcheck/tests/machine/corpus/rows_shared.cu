// grid 2, block 64, n 64: each thread sums a row of a padded tile, unrolled
extern "C" __global__ void rows_shared(const float* a, const int* c, float* b, int n) {
    __shared__ float tile[64][65];
    for (int r = 0; r < 64; r++) tile[r][threadIdx.x] = a[(blockIdx.x * 64 + r) * 64 + threadIdx.x];
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 64; k++) sum += tile[threadIdx.x][k];
    b[blockIdx.x * 64 + threadIdx.x] = sum;
}
