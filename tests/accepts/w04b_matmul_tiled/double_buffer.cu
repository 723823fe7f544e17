#include <cuda_pipeline_primitives.h>

template <int TILE, int STAGES>
__global__ void double_buffered(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float of_a[STAGES][TILE][TILE], of_b[STAGES][TILE][TILE];
    constexpr int ROWS = 8, EACH = TILE / ROWS;
    const int x = threadIdx.x, y = threadIdx.y, top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    const int steps = (k + TILE - 1) / TILE;

    auto copy = [](float* to, const float* from, long long at, bool inside) {
        __pipeline_memcpy_async(to, from + (inside ? at : 0), sizeof(float), inside ? 0 : sizeof(float));
    };
    auto fetch = [&](int step) {
        for (int r = y; step < steps && r < TILE; r += ROWS) {
            const int row = top + r, inner = step * TILE;
            copy(&of_a[step % STAGES][r][x], a, (long long)row * k + inner + x, row < m && inner + x < k);
            copy(&of_b[step % STAGES][r][x], b, (long long)(inner + r) * n + left + x, inner + r < k && left + x < n);
        }
        __pipeline_commit();
    };

    float sums[EACH] = {};
    for (int s = 0; s < STAGES - 1; ++s) fetch(s);
    for (int step = 0; step < steps; ++step) {
        fetch(step + STAGES - 1);
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();
        for (int i = 0; i < TILE; ++i) {
            const float right = of_b[step % STAGES][i][x];
            for (int e = 0; e < EACH; ++e) sums[e] += of_a[step % STAGES][y + e * ROWS][i] * right;
        }
        __syncthreads();
    }
    for (int e = 0; e < EACH; ++e) {
        const int row = top + y + e * ROWS, column = left + x;
        if (row < m && column < n) out[(long long)row * n + column] = sums[e];
    }
}
