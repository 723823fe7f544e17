// grid 4, block 128, n 1024: pairs of half precision
#include <cuda_fp16.h>
extern "C" __global__ void halves(const float* a, const int* c, float* b, int n) {
    __shared__ __half2 s[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    s[t] = __floats2half2_rn(a[2 * i], a[2 * i + 1]);
    __syncthreads();
    __half2 x = __hadd2(s[t], s[t ^ 1]);
    __half* h = reinterpret_cast<__half*>(s);
    b[i] = __low2float(x) + __half2float(h[2 * t]) + __half2float(h[2 * t + 1]) + __half2float(h[t]);
}
