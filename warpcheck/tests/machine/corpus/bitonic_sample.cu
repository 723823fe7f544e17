// grid 2, block 256, n 512: a bitonic sort of 512 in shared memory, a comparison of each thread
__device__ inline void order(float& x, float& y, bool up) {
    if ((x > y) == up) {
        float t = x;
        x = y;
        y = t;
    }
}
extern "C" __global__ void bitonic_sample(const float* a, const int* c, float* b, int n) {
    __shared__ float s[512];
    a += blockIdx.x * 512 + threadIdx.x;
    b += blockIdx.x * 512 + threadIdx.x;
    s[threadIdx.x] = a[0];
    s[threadIdx.x + 256] = a[256];
    for (int size = 2; size < 512; size <<= 1) {
        bool up = (threadIdx.x & (size / 2)) != 0;
        for (int stride = size / 2; stride > 0; stride >>= 1) {
            __syncthreads();
            int i = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
            order(s[i], s[i + stride], up);
        }
    }
    for (int stride = 256; stride > 0; stride >>= 1) {
        __syncthreads();
        int i = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
        order(s[i], s[i + stride], false);
    }
    __syncthreads();
    b[0] = s[threadIdx.x];
    b[256] = s[threadIdx.x + 256];
}
