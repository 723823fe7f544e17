// grid 4, block 256, n 4000: one counter in global memory, and a sum
extern "C" __global__ void count_global(const float* a, const int* c, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && a[i] > 0) {
        atomicAdd((int*)b, 1);
        atomicAdd((int*)b + 1, c[i]);
        atomicMax((int*)b + 2, c[i]);
    }
}
