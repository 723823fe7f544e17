__global__ void vector_add(const float* x, const float* y, float* out, long long n) {
    for (volatile long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;) out[i] = x[i] + y[i];
}
