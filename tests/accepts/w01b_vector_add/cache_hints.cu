typedef const float* __restrict__ in_t;

__global__ void vecadd_u64(float* __restrict__ out, in_t x, in_t y, unsigned long long n) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    __stcs(out + i, __ldg(x + i) + __ldcs(y + i));
}
