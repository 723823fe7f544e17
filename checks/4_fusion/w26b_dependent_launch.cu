// The baseline of dependent_launch: the same kernels, but the second starts only when the first has ended.

#include <cuda_bf16.h>

constexpr int WARP = 32, WARPS = 8;  // warps in a block of multiply
constexpr int VECTOR = 8;            // bfloat16 values of 16 bytes
constexpr int ROWS = 2;              // rows of w per warp, which share the loads of h
constexpr int AHEAD = 4;             // vectors of each row that each lane loads at once

__device__ float warp_sum(float value) {
    for (int step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

// h = x * weight / sqrt(mean(x^2) + eps), in one block.
extern "C" __global__ void __launch_bounds__(1024)
normalize(const __nv_bfloat16* x, const __nv_bfloat16* weight, float* h, int k, float eps) {
    __shared__ float sums[WARP];
    float sum = 0;
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(weight + i));  // arrives during the reduction
        sum += __bfloat162float(x[i]) * __bfloat162float(x[i]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
    __syncthreads();
    const float mean = warp_sum(threadIdx.x % WARP < blockDim.x / WARP ? sums[threadIdx.x % WARP] : 0) / k;
    const float scale = rsqrtf(mean + eps);
    for (int i = threadIdx.x; i < k; i += blockDim.x) h[i] = __bfloat162float(x[i]) * scale * __bfloat162float(weight[i]);
}

// Returns the sum of eight products.
__device__ float dot(uint4 w, float4 low, float4 high) {
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&w);
    const float2 a = __bfloat1622float2(pairs[0]), b = __bfloat1622float2(pairs[1]);
    const float2 c = __bfloat1622float2(pairs[2]), d = __bfloat1622float2(pairs[3]);
    return a.x * low.x + a.y * low.y + b.x * low.z + b.y * low.w + c.x * high.x + c.y * high.y + d.x * high.z +
           d.y * high.w;
}

// y = W h, with a warp for each row of W, or for several rows.
extern "C" __global__ void __launch_bounds__(256)
multiply(const __nv_bfloat16* w, const float* h, __nv_bfloat16* y, int n, int k) {
    const int row = ROWS * (blockIdx.x * WARPS + threadIdx.x / WARP), lane = threadIdx.x % WARP, count = k / VECTOR;
    if (row >= n) return;
    const uint4* rows[ROWS];
    uint4 ahead[ROWS][AHEAD];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        rows[r] = reinterpret_cast<const uint4*>(w + (long long)min(row + r, n - 1) * k);
        for (int j = 0; j < AHEAD; ++j)
            if (j * WARP + lane < count) ahead[r][j] = __ldcs(rows[r] + j * WARP + lane);
    }
    float sums[ROWS] = {};
    for (int first = lane; first < count; first += AHEAD * WARP) {
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            const int i = first + j * WARP, next = i + AHEAD * WARP;
            if (i >= count) break;
            const float4* vectors = reinterpret_cast<const float4*>(h + VECTOR * i);
            const float4 low = vectors[0], high = vectors[1];
            for (int r = 0; r < ROWS; ++r) {
                sums[r] += dot(ahead[r][j], low, high);
                if (next < count) ahead[r][j] = __ldcs(rows[r] + next);
            }
        }
    }
    for (int r = 0; r < ROWS; ++r) {
        const float sum = warp_sum(sums[r]);
        if (lane == 0 && row + r < n) y[row + r] = __float2bfloat16(sum);
    }
}
