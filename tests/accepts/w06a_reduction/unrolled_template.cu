template <unsigned int blockSize>
__device__ void finishInSharedMemory(float* sdata, float mySum) {
    unsigned int tid = threadIdx.x;
    sdata[tid] = mySum;
    __syncthreads();
    if (blockSize >= 512) { if (tid < 256) sdata[tid] = mySum = mySum + sdata[tid + 256]; __syncthreads(); }
    if (blockSize >= 256) { if (tid < 128) sdata[tid] = mySum = mySum + sdata[tid + 128]; __syncthreads(); }
    if (blockSize >= 128) { if (tid < 64) sdata[tid] = mySum = mySum + sdata[tid + 64]; __syncthreads(); }
    if (tid < 32) {
        if (blockSize >= 64) mySum += sdata[tid + 32];
        for (int offset = 16; offset > 0; offset >>= 1) mySum += __shfl_down_sync(0xffffffffu, mySum, offset);
        if (tid == 0) sdata[0] = mySum;
    }
    __syncthreads();
}

template <unsigned int blockSize>
__global__ void reduceKernel(const float* g_idata, float* g_odata, unsigned long long n) {
    extern __shared__ float sdata[];
    unsigned long long i = (unsigned long long)blockIdx.x * blockSize * 2 + threadIdx.x;
    unsigned long long gridSize = (unsigned long long)blockSize * 2 * gridDim.x;
    float mySum = 0;
    while (i < n) {
        mySum += g_idata[i];
        if (i + blockSize < n) mySum += g_idata[i + blockSize];
        i += gridSize;
    }
    finishInSharedMemory<blockSize>(sdata, mySum);
    if (threadIdx.x == 0) g_odata[blockIdx.x] = sdata[0];
}
