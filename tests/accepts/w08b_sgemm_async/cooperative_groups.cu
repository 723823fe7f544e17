#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

namespace cg = cooperative_groups;

constexpr int TILE = 128, DEPTH = 16, THREADS = 256;

// A row of a tile: what lies inside by an asynchronous copy of the whole group, zeros behind it.
template <typename Group>
__device__ void row_async(const Group& group, float* to, const float* from, int inside, int all) {
    inside = max(0, min(inside, all));
    for (int i = inside + group.thread_rank(); i < all; i += group.size()) to[i] = 0;
    cg::memcpy_async(group, to, from, inside * sizeof(float));
}

__launch_bounds__(THREADS)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float4 tile_a[2][TILE][DEPTH / 4], tile_b[2][DEPTH][TILE / 4];
    const auto block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    const auto half_warp = cg::tiled_partition<16>(block);
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[8][8] = {};

    auto load = [&](int half, int depth) {
        for (int r = half_warp.meta_group_rank(); r < TILE; r += half_warp.meta_group_size()) {
            const long long from = (long long)min(row + r, m - 1) * k + depth;
            row_async(half_warp, &tile_a[half][r][0].x, a + from, row + r < m ? k - depth : 0, DEPTH);
        }
        for (int r = warp.meta_group_rank(); r < DEPTH; r += warp.meta_group_size()) {
            const long long from = (long long)min(depth + r, k - 1) * n + column;
            row_async(warp, &tile_b[half][r][0].x, b + from, depth + r < k ? n - column : 0, TILE);
        }
    };

    load(0, 0);
    for (int depth = 0, half = 0; depth < k; depth += DEPTH, half ^= 1) {
        cg::wait(block);
        if (depth + DEPTH < k) load(half ^ 1, depth + DEPTH);
        const float4(*of_a)[DEPTH / 4] = tile_a[half];
        const float4(*of_b)[TILE / 4] = tile_b[half];
#pragma unroll
        for (int i = 0; i < DEPTH; i += 4) {
            float4 down[8];
#pragma unroll
            for (int r = 0; r < 8; ++r) down[r] = of_a[y + 16 * r][i / 4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float4 across[2] = {of_b[i + e][x], of_b[i + e][x + 16]};
#pragma unroll
                for (int r = 0; r < 8; ++r) {
#pragma unroll
                    for (int c = 0; c < 8; ++c) sum[r][c] += (&down[r].x)[e] * (&across[c / 4].x)[c % 4];
                }
            }
        }
        block.sync();
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int i = row + y + 16 * r;
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
