// grid 2, block 256, n 4096: 64 bins in global memory
extern "C" __global__ void histogram_global(const float* a, const int* c, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = blockDim.x * gridDim.x;
    for (; i < n; i += stride) atomicAdd((int*)&b[c[i] & 63], 1);
}
