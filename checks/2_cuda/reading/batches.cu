// Launch: <<<1, 128>>> int x[256], int count[64]
__global__ void kernel(const int* x, int* count) {
    __shared__ int own[64];
    const int t = threadIdx.x;
    if (t < 64)
        own[t] = 0;
    __syncthreads();
    for (int begin = 0; begin < 256; begin += 128) {
        atomicAdd(&own[x[begin + t] % 64], 1);
        __syncthreads();
        if (t < 64)
            count[t] += own[t], own[t] = 0;
    }
}
