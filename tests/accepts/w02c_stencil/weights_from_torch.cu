#include <math.h>
#include <stdint.h>

__global__ void convolve_1d(const float *__restrict__ x, const float *__restrict__ weights, float *out, int64_t n) {
    __shared__ float w[17], tile[512 + 16];
    const int t = threadIdx.x;
    const int64_t i = (int64_t)blockIdx.x * 512 + t;
    if (t < 17) w[t] = __ldg(&weights[t]);
    for (int j = t; j < 512 + 16; j += 512) {
        const int64_t at = (int64_t)blockIdx.x * 512 + j - 8;
        tile[j] = (at < 0 || at >= n) ? 0.0f : __ldg(&x[at]);
    }
    __syncthreads();
    float sum = 0.0f;
    #pragma unroll
    for (int k = 0; k < 17; k++) {
        sum = fmaf(w[k], tile[t + k], sum);
    }
    if (i < n) out[i] = sum;
}
