// Launch: <<<2, 128>>> int x[256], int count[64]
__global__ void kernel(const int* x, int* count) {
    __shared__ int own[64];
    const int t = threadIdx.x;
    if (t < 64)
        own[t] = 0;
    __syncthreads();
    const int bin = x[blockIdx.x * 128 + t] / 4;
    atomicAdd(&own[bin], 1);
    __syncthreads();
    if (t < 64)
        atomicAdd(&count[t], own[t]);
}
