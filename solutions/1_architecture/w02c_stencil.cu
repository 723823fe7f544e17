// Stencil: out[i] = sum of (9 - |k|) * x[i + k] / 81 for k = -8 .. 8, over n float32 elements; x is 0 outside.
//
// The threads of a block need nearly the same elements of x. They load them together into shared memory, with a halo
// of 8 elements on either side, and wait at a barrier until all of them have arrived.
//
// A thread computes four neighboring outputs from a window that it holds in registers: 20 values instead of 68.
// ALIGNED: x starts at a multiple of 16 bytes, so four elements are loaded at once.

constexpr int RADIUS = 8;
constexpr int THREADS = 128;  // small blocks: other blocks load while one waits at its barrier
constexpr int HALO = RADIUS / 4;  // in float4 elements, like all sizes below

template <bool ALIGNED>
__device__ float4 load(const float* x, long long i, long long n) {
    if (ALIGNED && i >= 0 && i + 4 <= n) return *reinterpret_cast<const float4*>(x + i);
    const auto at = [&](long long j) { return j >= 0 && j < n ? x[j] : 0.0f; };
    return {at(i), at(i + 1), at(i + 2), at(i + 3)};
}

template <bool ALIGNED>
__global__ void stencil(const float* x, float* out, long long n) {
    __shared__ float4 tile[HALO + THREADS + HALO];
    const long long begin = (long long)blockIdx.x * THREADS * 4;
    const long long i = begin + threadIdx.x * 4;

    tile[HALO + threadIdx.x] = load<ALIGNED>(x, i, n);
    if (threadIdx.x < 2 * HALO) {
        const int index = threadIdx.x < HALO ? threadIdx.x : THREADS + threadIdx.x;
        tile[index] = load<ALIGNED>(x, begin + (index - HALO) * 4, n);
    }
    __syncthreads();

    alignas(16) float window[4 + 2 * RADIUS];
    for (int v = 0; v <= 2 * HALO; ++v) {
        reinterpret_cast<float4*>(window)[v] = tile[threadIdx.x + v];
    }
    float sum[4] = {};
    for (int e = 0; e < 4; ++e) {
        for (int k = 0; k <= 2 * RADIUS; ++k) {
            const int weight = RADIUS + 1 - abs(k - RADIUS);
            sum[e] += weight * window[e + k];
        }
        sum[e] *= 1.0f / ((RADIUS + 1) * (RADIUS + 1));
    }

    if (i + 4 <= n) {
        *reinterpret_cast<float4*>(out + i) = {sum[0], sum[1], sum[2], sum[3]};
    } else {
        for (int e = 0; e < 4; ++e) {
            if (i + e < n) out[i + e] = sum[e];
        }
    }
}
