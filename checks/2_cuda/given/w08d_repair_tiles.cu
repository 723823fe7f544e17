// Four kernels that compute out = a @ b for float32 matrices a (m x k) and b (k x n). Each of them is broken.
// A block of 16 x 16 threads computes a tile of out. Each thread copies one element of every tile of a and of b.

#include <cuda_pipeline.h>

constexpr int TILE = 16;
constexpr int STAGES = 3;

// ---- tile ----

// The tiles of a and b pass through registers to shared memory.
__global__ void tile(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float acc = 0.0f;
    for (int k0 = 0; k0 < k; k0 += TILE) {
        const int a_col = k0 + threadIdx.x, b_row = k0 + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = row < m && a_col < k ? a[row * k + a_col] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = b_row < k && col < n ? b[b_row * n + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) acc += As[threadIdx.y][i] * Bs[i][threadIdx.x];
    }
    if (row < m && col < n) out[row * n + col] = acc;
}

// ---- ring ----

// The tiles are copied by cp.async into a circular buffer of STAGES, STAGES - 1 tiles ahead.
__global__ void ring(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float As[STAGES][TILE][TILE], Bs[STAGES][TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    const int tiles = (k + TILE - 1) / TILE;
    float acc = 0.0f;
    const auto copy_stage = [&](int tile) {
        const int a_col = tile * TILE + threadIdx.x, b_row = tile * TILE + threadIdx.y;
        float* a_dst = &As[tile % STAGES][threadIdx.y][threadIdx.x];
        float* b_dst = &Bs[tile % STAGES][threadIdx.y][threadIdx.x];
        // The last argument is the number of bytes that become 0 instead of being read.
        __pipeline_memcpy_async(a_dst, a + row * k + a_col, 4, row < m && a_col < k ? 0 : 4);
        __pipeline_memcpy_async(b_dst, b + b_row * n + col, 4, b_row < k && col < n ? 0 : 4);
    };
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        if (tile < tiles) copy_stage(tile);
        __pipeline_commit();
    }
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + STAGES - 1 < tiles) copy_stage(tile + STAGES - 1);
        __pipeline_commit();
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();
        for (int i = 0; i < TILE; ++i) acc += As[tile % STAGES][threadIdx.y][i] * Bs[tile % STAGES][i][threadIdx.x];
    }
    if (row < m && col < n) out[row * n + col] = acc;
}

// ---- tail ----

// Like ring, but with the barrier before the next copies.
__global__ void tail(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float As[STAGES][TILE][TILE], Bs[STAGES][TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    const int tiles = (k + TILE - 1) / TILE;
    float acc = 0.0f;
    const auto copy_stage = [&](int tile) {
        const int a_col = tile * TILE + threadIdx.x, b_row = tile * TILE + threadIdx.y;
        float* a_dst = &As[tile % STAGES][threadIdx.y][threadIdx.x];
        float* b_dst = &Bs[tile % STAGES][threadIdx.y][threadIdx.x];
        if (tile < tiles) {
            __pipeline_memcpy_async(a_dst, a + row * k + a_col, 4, row < m && a_col < k ? 0 : 4);
            __pipeline_memcpy_async(b_dst, b + b_row * n + col, 4, b_row < k && col < n ? 0 : 4);
            __pipeline_commit();
        }
    };
    for (int tile = 0; tile < STAGES - 1; ++tile) copy_stage(tile);
    for (int tile = 0; tile < tiles; ++tile) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        copy_stage(tile + STAGES - 1);
        for (int i = 0; i < TILE; ++i) acc += As[tile % STAGES][threadIdx.y][i] * Bs[tile % STAGES][i][threadIdx.x];
    }
    if (row < m && col < n) out[row * n + col] = acc;
}

// ---- edge ----

// Like tile, but with both barriers. Threads outside out have nothing to add up.
__global__ void edge(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || col >= n) return;
    float acc = 0.0f;
    for (int k0 = 0; k0 < k; k0 += TILE) {
        const int a_col = k0 + threadIdx.x, b_row = k0 + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = row < m && a_col < k ? a[row * k + a_col] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = b_row < k && col < n ? b[b_row * n + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) acc += As[threadIdx.y][i] * Bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) out[row * n + col] = acc;
}
