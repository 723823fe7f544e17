// grid 2, block 256, n 8192: every thread counts into one bin of shared memory
extern "C" __global__ void histogram_one(const float* a, const int* c, float* b, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (c[i] % 2) atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd((int*)b, count);
}
