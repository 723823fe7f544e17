// Launch: <<<2, 128>>> float x[200], float out[200], int n = 200
__global__ void kernel(const float* x, float* out, int n) {
    __shared__ float tile[128];
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) {
        tile[threadIdx.x] = x[i];
        __syncthreads();
        out[i] = tile[threadIdx.x ^ 1];
    }
}
