// grid 4, block 128, n 1900: four elements of each thread, each with its own condition
extern "C" __global__ void tail_unrolled(const float* a, const int* c, float* b, int n) {
    int base = blockIdx.x * 512 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int i = base + 128 * k;
        if (i < n) b[i] = a[i] * 3.0f + c[i];
    }
}
