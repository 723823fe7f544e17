// The first elements, up to a line of out that is 128 bytes long, are added by threads of their own.
extern "C" __global__ void vector_add_peeled(const float* x, const float* y, float* out, long long n, int head) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < head) out[i] = x[i] + y[i];
    const long long k = head + i;
    if (k < n) out[k] = x[k] + y[k];
}
