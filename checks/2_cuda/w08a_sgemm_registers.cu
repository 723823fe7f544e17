// The baseline of sgemm_registers: a tile of 32 in shared memory, and one element of out per thread.

constexpr int TILE = 32;

__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (int depth = 0; depth < k; depth += TILE) {
        tile_a[y][x] = row < m && depth + x < k ? a[(long long)row * k + depth + x] : 0;
        tile_b[y][x] = depth + y < k && column < n ? b[(long long)(depth + y) * n + column] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += tile_a[y][i] * tile_b[i][x];
        __syncthreads();
    }
    if (row < m && column < n) out[(long long)row * n + column] = sum;
}
