// grid 4, block 256, n 1024: neighbors first, a divergent tree
extern "C" __global__ void reduce_interleaved(const float* a, const int* c, float* b, int n) {
    __shared__ float s[256];
    unsigned t = threadIdx.x;
    s[t] = a[blockIdx.x * 256 + t];
    __syncthreads();
    for (unsigned d = 1; d < blockDim.x; d *= 2) {
        if (t % (2 * d) == 0) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) b[blockIdx.x] = s[0];
}
