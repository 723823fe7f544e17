// Launch: <<<2, 128>>> int x[256], int count[2048]
__global__ void kernel(const int* x, int* count) {
    __shared__ int own[1024];
    const int t = threadIdx.x;
    for (int i = t; i < 1024; i += 128)
        own[i] = 0;
    __syncthreads();
    const int bin = x[blockIdx.x * 128 + t] % 32;
    atomicAdd(&own[32 * bin], 1);
    __syncthreads();
    if (t < 32)
        atomicAdd(&count[t], own[32 * t]);
}
