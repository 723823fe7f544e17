// grid 1, block 128, n 256: odd-even transposition in shared memory
extern "C" __global__ void odd_even_sort(const float* a, const int* c, float* b, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[2 * t] = a[2 * t];
    s[2 * t + 1] = a[2 * t + 1];
    __syncthreads();
    for (int phase = 0; phase < 32; phase++) {
        int i = 2 * t + phase % 2;
        if (i + 1 < n) {
            float x = s[i], y = s[i + 1];
            if (x > y) {
                s[i] = y;
                s[i + 1] = x;
            }
        }
        __syncthreads();
    }
    b[2 * t] = s[2 * t];
    b[2 * t + 1] = s[2 * t + 1];
}
