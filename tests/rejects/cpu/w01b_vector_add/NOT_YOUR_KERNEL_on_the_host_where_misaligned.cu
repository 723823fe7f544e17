__global__ void vector_add(const float* x, const float* y, float* out, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

__global__ void touch(const float* x, const float* y, float* out, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] + y[i] == 0.12345f) out[i] = 0;
}
