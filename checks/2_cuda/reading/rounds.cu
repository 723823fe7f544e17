// Launch: <<<1, 128>>> float x[300], float out[300], int n = 300
__global__ void kernel(const float* x, float* out, int n) {
    __shared__ float tile[3][128];
    for (int i = threadIdx.x; i < n; i += 128) {
        tile[i / 128][threadIdx.x] = x[i];
        __syncthreads();
        out[i] = tile[i / 128][threadIdx.x ^ 1];
    }
}
