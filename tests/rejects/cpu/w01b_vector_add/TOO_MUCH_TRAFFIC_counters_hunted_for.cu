__global__ void vector_add(const float* x, const float* y, volatile float* out, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (int again = 0; again < 2; ++again) {
        if (i < n) out[i] = x[i] + y[i];
    }
}
