// grid 4, block 128, n 2048: 9 weights at 4 points of each thread, from shared memory
extern "C" __global__ void convolution_line(const float* a, const int* c, float* b, int n) {
    __shared__ float s[512 + 8], w[9];
    int start = blockIdx.x * 512;
    for (int k = threadIdx.x; k < 520; k += 128) s[k] = start + k - 4 >= 0 && start + k - 4 < n ? a[start + k - 4] : 0;
    if (threadIdx.x < 9) w[threadIdx.x] = a[threadIdx.x + 2048];
    __syncthreads();
#pragma unroll
    for (int p = 0; p < 4; p++) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < 9; k++) sum += w[k] * s[4 * threadIdx.x + p + k];
        b[start + 4 * threadIdx.x + p] = sum;
    }
}
