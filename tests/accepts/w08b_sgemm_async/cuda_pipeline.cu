#include <cuda/pipeline>

constexpr int TILE = 128, DEPTH = 8, THREADS = 256, STAGES = 2;

using Float = cuda::aligned_size_t<alignof(float)>;

__launch_bounds__(THREADS)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float4 tile_a[STAGES][DEPTH][TILE / 4 + 1], tile_b[STAGES][DEPTH][TILE / 4];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[8][8] = {};
    cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();

    auto produce = [&](int step) {
        pipe.producer_acquire();
        for (int i = threadIdx.x; step * DEPTH < k && i < TILE * DEPTH; i += THREADS) {
            const int u = step * DEPTH + i % DEPTH, v = step * DEPTH + i / TILE, r = row + i / DEPTH, c = column + i % TILE;
            float* to_a = reinterpret_cast<float*>(tile_a[step % STAGES][i % DEPTH]) + i / DEPTH;
            float* to_b = reinterpret_cast<float*>(tile_b[step % STAGES][i / TILE]) + i % TILE;
            if (r < m && u < k) {
                cuda::memcpy_async(to_a, a + (long long)r * k + u, Float(sizeof(float)), pipe);
            } else {
                *to_a = 0;
            }
            if (v < k && c < n) {
                cuda::memcpy_async(to_b, b + (long long)v * n + c, Float(sizeof(float)), pipe);
            } else {
                *to_b = 0;
            }
        }
        pipe.producer_commit();
    };

    produce(0);
    for (int step = 0; step * DEPTH < k; ++step) {
        produce(step + 1);
        cuda::pipeline_consumer_wait_prior<1>(pipe);
        __syncthreads();
        const float4(*of_a)[TILE / 4 + 1] = tile_a[step % STAGES];
        const float4(*of_b)[TILE / 4] = tile_b[step % STAGES];
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            const float4 down[2] = {of_a[i][y], of_a[i][y + 16]}, across[2] = {of_b[i][x], of_b[i][x + 16]};
#pragma unroll
            for (int r = 0; r < 8; ++r) {
#pragma unroll
                for (int c = 0; c < 8; ++c) sum[r][c] += (&down[r / 4].x)[r % 4] * (&across[c / 4].x)[c % 4];
            }
        }
        __syncthreads();
        pipe.consumer_release();
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int i = row + r / 4 * 64 + 4 * y + r % 4;
        if (i >= m) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int j = column + 64 * half + 4 * x;
            const float* four = &sum[r][4 * half];
            float* to = out + (long long)i * n + j;
            if (n % 4 == 0 && j < n) {
                *(float4*)to = make_float4(four[0], four[1], four[2], four[3]);
            } else {
                for (int e = 0; e < 4 && j + e < n; ++e) to[e] = four[e];
            }
        }
    }
}
