constexpr int EACH = 64;

__global__ void vector_add(const float* x, const float* y, float* out, long long n) {
    const long long begin = blockIdx.x * (long long)blockDim.x * EACH + threadIdx.x;
    float sum[EACH];
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const long long i = begin + k * (long long)blockDim.x;
        sum[k] = i < n ? x[i] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const long long i = begin + k * (long long)blockDim.x;
        if (i < n) out[i] = sum[k] + y[i];
    }
}
