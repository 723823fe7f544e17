constexpr int TILE = 128, DEPTH = 8;

__launch_bounds__(256)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float4 of_a[DEPTH][TILE / 4 + 1], of_b[DEPTH][TILE / 4];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[8][8] = {};
    for (int begin = 0; begin < k; begin += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
            const int u = begin + i % DEPTH, v = begin + i / TILE, r = row + i / DEPTH, c = column + i % TILE;
            ((float*)of_a[i % DEPTH])[i / DEPTH] = r < m && u < k ? a[(long long)r * k + u] : 0;
            ((float*)of_b[i / TILE])[i % TILE] = v < k && c < n ? b[(long long)v * n + c] : 0;
        }
        __syncthreads();
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
