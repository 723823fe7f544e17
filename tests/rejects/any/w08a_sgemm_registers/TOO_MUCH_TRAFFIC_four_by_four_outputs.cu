constexpr int TILE = 64, DEPTH = 16;

__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float tile_a[DEPTH][TILE + 4], tile_b[DEPTH][TILE];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[4][4] = {};
    for (int depth = 0; depth < k; depth += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
            const int u = depth + i % DEPTH, v = depth + i / TILE, r = row + i / DEPTH, c = column + i % TILE;
            tile_a[i % DEPTH][i / DEPTH] = r < m && u < k ? a[(long long)r * k + u] : 0;
            tile_b[i / TILE][i % TILE] = v < k && c < n ? b[(long long)v * n + c] : 0;
        }
        __syncthreads();
        for (int i = 0; i < DEPTH; ++i) {
            for (int r = 0; r < 4; ++r) {
                for (int c = 0; c < 4; ++c) sum[r][c] += tile_a[i][y + 16 * r] * tile_b[i][x + 16 * c];
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 4; ++c) {
            const int i = row + y + 16 * r, j = column + x + 16 * c;
            if (i < m && j < n) out[(long long)i * n + j] = sum[r][c];
        }
    }
}
