// Launch: <<<2, 128>>> int bin[256], int count[16]
__global__ void kernel(const int* bin, int* count) {
    __shared__ int own[16];
    const int t = threadIdx.x;
    if (t < 16)
        own[t] = 0;
    __syncthreads();
    atomicAdd(own + bin[blockIdx.x * 128 + t] % 16, 1);
    __syncthreads();
    if (t < 16)
        count[t] += own[t];
}
