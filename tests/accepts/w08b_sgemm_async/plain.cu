#include <cuda_pipeline.h>

constexpr int TILE = 128, DEPTH = 8, THREADS = 256;

struct Tiles {
    float4 a[DEPTH][TILE / 4 + 1], b[DEPTH][TILE / 4];
};

__device__ void begin(Tiles& to, const float* a, const float* b, int m, int n, int k, int row, int column, int depth) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        const int u = depth + i % DEPTH, v = depth + i / TILE, r = row + i / DEPTH, c = column + i % TILE;
        const bool in_a = r < m && u < k, in_b = v < k && c < n;
        float* to_a = reinterpret_cast<float*>(to.a[i % DEPTH]) + i / DEPTH;
        float* to_b = reinterpret_cast<float*>(to.b[i / TILE]) + i % TILE;
        __pipeline_memcpy_async(to_a, in_a ? a + (long long)r * k + u : a, 4, in_a ? 0 : 4);
        __pipeline_memcpy_async(to_b, in_b ? b + (long long)v * n + c : b, 4, in_b ? 0 : 4);
    }
}

__launch_bounds__(THREADS)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ Tiles tiles[2];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[8][8] = {};
    begin(tiles[0], a, b, m, n, k, row, column, 0);
    __pipeline_commit();
    for (int depth = 0, now = 0; depth < k; depth += DEPTH, now ^= 1) {
        if (depth + DEPTH < k) begin(tiles[now ^ 1], a, b, m, n, k, row, column, depth + DEPTH);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            const float4 down[2] = {tiles[now].a[i][y], tiles[now].a[i][y + 16]};
            const float4 across[2] = {tiles[now].b[i][x], tiles[now].b[i][x + 16]};
#pragma unroll
            for (int r = 0; r < 8; ++r) {
#pragma unroll
                for (int c = 0; c < 8; ++c) sum[r][c] += (&down[r / 4].x)[r % 4] * (&across[c / 4].x)[c % 4];
            }
        }
        __syncthreads();
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
