// grid 2, block 256, n 512: inclusive scan, two buffers
extern "C" __global__ void scan_hillis(const float* a, const int* c, float* b, int n) {
    __shared__ float s[2][256];
    int t = threadIdx.x, from = 0, to = 1;
    s[0][t] = a[blockIdx.x * 256 + t];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        if (t >= d)
            s[to][t] = s[from][t] + s[from][t - d];
        else
            s[to][t] = s[from][t];
        __syncthreads();
        from = to, to = 1 - to;
    }
    b[blockIdx.x * 256 + t] = s[from][t];
}
