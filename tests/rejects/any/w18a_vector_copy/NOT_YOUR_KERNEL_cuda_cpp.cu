__global__ void copy(const unsigned char* x, unsigned char* out, long long n) {
    const long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < n) out[i] = x[i];
}
