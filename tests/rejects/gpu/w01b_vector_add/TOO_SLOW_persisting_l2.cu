__global__ void vector_add(const float* x, const float* y, float* out, long long n) {
    const long long step = (long long)gridDim.x * blockDim.x;  // far too few threads to keep memory busy
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) out[i] = x[i] + y[i];
}
