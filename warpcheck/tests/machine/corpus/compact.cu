// grid 4, block 256, n 1000: keeps positive elements, in places that an atomic gives
extern "C" __global__ void compact(const float* a, const int* c, float* b, int n) {
    __shared__ int count, base;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x, place = -1;
    if (i < n && a[i] > 0) place = atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == 0) base = atomicAdd((int*)b, count);
    __syncthreads();
    if (place >= 0) b[1 + base + place] = a[i];
}
