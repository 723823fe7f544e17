// Stencil: out[i] = sum of (9 - |k|) * x[i + k] / 81 for k = -8 .. 8, over n float32 elements; x is 0 outside.
//
// The threads of a block need nearly the same elements of x. They load them together into shared memory, with a halo
// of 8 elements on either side, and wait at a barrier until all of them are there.
//
// A thread makes EACH neighbouring elements from a window that it holds in registers: 20 values where 68 are used.

constexpr int RADIUS = 8;
constexpr int THREADS = 256;
constexpr int EACH = 4;
constexpr int TILE = THREADS * EACH;
constexpr int WINDOW = EACH + 2 * RADIUS;

__global__ void stencil(const float* x, float* out, long long n) {
    __shared__ float4 tile[(TILE + 2 * RADIUS) / 4];  // float4 for its alignment
    const long long begin = (long long)blockIdx.x * TILE;

    for (int t = threadIdx.x; t < TILE + 2 * RADIUS; t += THREADS) {
        const long long i = begin - RADIUS + t;
        reinterpret_cast<float*>(tile)[t] = i >= 0 && i < n ? x[i] : 0.0f;
    }
    __syncthreads();

    float window[WINDOW];
    for (int w = 0; w < WINDOW; w += 4) {
        *reinterpret_cast<float4*>(window + w) = tile[threadIdx.x + w / 4];
    }
    float sum[EACH] = {};
    for (int e = 0; e < EACH; ++e) {
        for (int k = 0; k <= 2 * RADIUS; ++k) {
            const int weight = RADIUS + 1 - abs(k - RADIUS);
            sum[e] += weight * window[e + k];
        }
        sum[e] *= 1.0f / ((RADIUS + 1) * (RADIUS + 1));
    }

    const long long i = begin + threadIdx.x * EACH;
    if (i + EACH <= n) {
        *reinterpret_cast<float4*>(out + i) = {sum[0], sum[1], sum[2], sum[3]};
    } else {
        for (int e = 0; e < EACH; ++e) {
            if (i + e < n) out[i + e] = sum[e];
        }
    }
}
