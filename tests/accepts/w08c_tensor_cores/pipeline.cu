// wmma behind cuda::pipeline: the next tiles arrive by memcpy_async while these are multiplied.

#include <cooperative_groups.h>
#include <cuda/pipeline>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

namespace cg = cooperative_groups;
using namespace nvcuda;

constexpr int TILE = 64;    // rows and columns of out
constexpr int DEPTH = 32;
constexpr int SKEW = 8;

template <typename T>
struct Stage {
    T a[TILE][DEPTH + SKEW];
    T b[DEPTH][TILE + SKEW];
};

template <typename T>
__global__ void __launch_bounds__(128) matmul(const T* a, const T* b, T* out, int m, int n, int k) {
    __shared__ alignas(32) Stage<T> stages[2];
    __shared__ alignas(32) float of_out[4][16][40];
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto pipeline = cuda::make_pipeline();
    const int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;

    // Each thread copies elements of its own, one by one, so that rows may begin anywhere.
    const auto fetch = [&](int step) {
        pipeline.producer_acquire();
        Stage<T>& stage = stages[step % 2];
        const int depth = step * DEPTH;
        if (depth < k) {
            for (int i = threadIdx.x; i < TILE * DEPTH; i += blockDim.x) {
                const int y = i / DEPTH, x = i % DEPTH;
                if (first_row + y < m && depth + x < k) {
                    cuda::memcpy_async(&stage.a[y][x], &a[(long long)(first_row + y) * k + depth + x], sizeof(T), pipeline);
                } else {
                    stage.a[y][x] = T(0.0f);
                }
            }
            for (int i = threadIdx.x; i < DEPTH * TILE; i += blockDim.x) {
                const int y = i / TILE, x = i % TILE;
                if (depth + y < k && first_column + x < n) {
                    cuda::memcpy_async(&stage.b[y][x], &b[(long long)(depth + y) * n + first_column + x], sizeof(T), pipeline);
                } else {
                    stage.b[y][x] = T(0.0f);
                }
            }
        }
        pipeline.producer_commit();
    };

    const int warp_row = warp.meta_group_rank() / 2 * 32, warp_column = warp.meta_group_rank() % 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
    for (auto& row : sum) {
        for (auto& one : row) wmma::fill_fragment(one, 0.0f);
    }
    fetch(0);
    for (int step = 0; step * DEPTH < k; ++step) {
        fetch(step + 1);
        cuda::pipeline_consumer_wait_prior<1>(pipeline);
        cg::this_thread_block().sync();
        const Stage<T>& stage = stages[step % 2];
        for (int depth = 0; depth < DEPTH; depth += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> left[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> right[2];
            for (int i = 0; i < 2; ++i) {
                wmma::load_matrix_sync(left[i], &stage.a[warp_row + 16 * i][depth], DEPTH + SKEW);
                wmma::load_matrix_sync(right[i], &stage.b[depth][warp_column + 16 * i], TILE + SKEW);
            }
            for (int i = 0; i < 2; ++i) {
                for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
            }
        }
        cg::this_thread_block().sync();
        pipeline.consumer_release();
    }

    for (int i = 0; i < 2; ++i) {
        auto& staged = of_out[warp.meta_group_rank()];
        for (int j = 0; j < 2; ++j) wmma::store_matrix_sync(&staged[0][16 * j], sum[i][j], 40, wmma::mem_row_major);
        warp.sync();
        for (int y = 0; y < 16; ++y) {
            const int row = first_row + warp_row + 16 * i + y, column = first_column + warp_column + warp.thread_rank();
            if (row < m && column < n) out[(long long)row * n + column] = T(staged[y][warp.thread_rank()]);
        }
        warp.sync();
    }
}
