// grid 2, block 64, n 64: each thread sums a row of a tile without padding, unrolled by 8
extern "C" __global__ void rows_shared_flat(const float* a, const int* c, float* b, int n) {
    __shared__ float tile[64 * 64];
    for (int k = threadIdx.x; k < 64 * 64; k += 64) tile[k] = a[blockIdx.x * 64 * 64 + k];
    __syncthreads();
    float sum = 0;
#pragma unroll 8
    for (int k = 0; k < n; k++) sum += tile[threadIdx.x * 64 + k];
    b[blockIdx.x * 64 + threadIdx.x] = sum;
}
