// grid 8, block 128, n 1000: a block for a row, halves in shared memory
extern "C" __global__ void softmax_rows(const float* a, const int* c, float* b, int n) {
    __shared__ float s[128];
    const float* x = a + blockIdx.x * n;
    float most = -1e30f, sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, x[i]);
    s[threadIdx.x] = most;
    __syncthreads();
    for (int d = 64; d >= 1; d /= 2) {
        if (threadIdx.x < d) s[threadIdx.x] = fmaxf(s[threadIdx.x], s[threadIdx.x + d]);
        __syncthreads();
    }
    most = s[0];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float e = expf(x[i] - most);
        sum += e;
        b[blockIdx.x * n + i] = e;
    }
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int d = 64; d >= 1; d /= 2) {
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    sum = s[0];
    for (int i = threadIdx.x; i < n; i += blockDim.x) b[blockIdx.x * n + i] /= sum;
}
