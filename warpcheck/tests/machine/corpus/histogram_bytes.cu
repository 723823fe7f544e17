// grid 2, block 256, n 8192: 256 bins in shared memory, of bytes
extern "C" __global__ void histogram_bytes(const float* a, const int* c, float* b, int n) {
    __shared__ unsigned int bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    const unsigned char* bytes = (const unsigned char*)c;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[bytes[i]], 1);
    __syncthreads();
    atomicAdd((unsigned int*)b + threadIdx.x, bins[threadIdx.x]);
}
