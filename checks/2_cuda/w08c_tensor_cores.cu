// The baseline of tensor_cores: each warp makes one 16 x 16 tile of out by wmma, and copies what it multiplies alone.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int TILE = 16;
constexpr int WARPS = 2;  // along each side of a block

template <typename T>
__global__ void matmul(const T* a, const T* b, T* out, int m, int n, int k) {
    __shared__ alignas(32) T a_frag[WARPS * WARPS][TILE][TILE];
    __shared__ alignas(32) T b_frag[WARPS * WARPS][TILE][TILE];
    __shared__ alignas(32) float c_frag[WARPS * WARPS][TILE][TILE];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_row = (blockIdx.y * WARPS + warp / WARPS) * TILE;
    const int first_column = (blockIdx.x * WARPS + warp % WARPS) * TILE;

    wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int depth = 0; depth < k; depth += TILE) {
        for (int i = lane; i < TILE * TILE; i += 32) {
            const int y = i / TILE, x = i % TILE;
            const bool in_a = first_row + y < m && depth + x < k, in_b = depth + y < k && first_column + x < n;
            a_frag[warp][y][x] = in_a ? a[(long long)(first_row + y) * k + depth + x] : T(0.0f);
            b_frag[warp][y][x] = in_b ? b[(long long)(depth + y) * n + first_column + x] : T(0.0f);
        }
        __syncwarp();
        wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, T, wmma::row_major> left;
        wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, T, wmma::row_major> right;
        wmma::load_matrix_sync(left, &a_frag[warp][0][0], TILE);
        wmma::load_matrix_sync(right, &b_frag[warp][0][0], TILE);
        wmma::mma_sync(sum, left, right, sum);
        __syncwarp();
    }
    wmma::store_matrix_sync(&c_frag[warp][0][0], sum, TILE, wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < TILE * TILE; i += 32) {
        const int row = first_row + i / TILE, column = first_column + i % TILE;
        if (row < m && column < n) out[(long long)row * n + column] = T(c_frag[warp][i / TILE][i % TILE]);
    }
}
