// Launch: <<<1, 64>>> float x[512], float out[64], int n = 512
__global__ void kernel(const float* x, float* out, int n) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    float sum = 0;
    for (int begin = 0; begin < n; begin += 64) {
        tile[t] = x[begin + t];
        __syncthreads();
        for (int i = 0; i < 64; ++i)
            sum += tile[i] * (t + 1);
    }
    out[t] = sum;
}
