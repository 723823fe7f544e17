__global__ void vector_add(const float* x, const float* y, float* out, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    float sum = 0;
    if (i < n) sum = x[i] + y[i];
}
