// grid 4, block 256, n 1024: one step of a bitonic sort in global memory
extern "C" __global__ void bitonic_global(const float* a, const int* c, float* b, int n) {
    unsigned i = threadIdx.x + blockDim.x * blockIdx.x, j = 8, k = 64, ixj = i ^ j;
    b[i] = a[i];
    __syncthreads();
    if (ixj > i) {
        if ((i & k) == 0 && b[i] > b[ixj]) {
            float t = b[i];
            b[i] = b[ixj];
            b[ixj] = t;
        }
        if ((i & k) != 0 && b[i] < b[ixj]) {
            float t = b[i];
            b[i] = b[ixj];
            b[ixj] = t;
        }
    }
}
