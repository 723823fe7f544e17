// grid 2, block 256, n 8192: four bins in shared memory
extern "C" __global__ void histogram_four(const float* a, const int* c, float* b, int n) {
    __shared__ int bins[4];
    if (threadIdx.x < 4) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[c[i] & 3], 1);
    __syncthreads();
    if (threadIdx.x < 4) atomicAdd((int*)b + threadIdx.x, bins[threadIdx.x]);
}
