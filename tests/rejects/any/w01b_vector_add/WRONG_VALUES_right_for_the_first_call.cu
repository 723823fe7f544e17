__global__ void vector_add(const float* x, const float* y, float* totals, float* out, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    totals[i] += x[i] + y[i];
    out[i] = totals[i];
}
