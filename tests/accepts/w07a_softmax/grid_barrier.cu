#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>

namespace cg = cooperative_groups;

constexpr int PIECE = 4096, THREADS = 256, WARPS = THREADS / 32;
constexpr float LOG2E = 1.44269504f;

__device__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <class Op>
__device__ float of_block(float mine, float none, Op op) {
    __shared__ float of_warps[WARPS];
    const auto block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    mine = cg::reduce(warp, mine, op);
    block.sync();
    if (warp.thread_rank() == 0) of_warps[warp.meta_group_rank()] = mine;
    block.sync();
    return cg::reduce(warp, warp.thread_rank() < WARPS ? of_warps[warp.thread_rank()] : none, op);
}

// A row of blocks has a row of the matrix, each block a piece of it in shared memory. They meet at the grid's barrier.
template <typename T>
__global__ void softmax(const T* x, T* out, float2* workspace, int rows, int columns) {
    __shared__ float kept[PIECE];
    const int begin = blockIdx.x * PIECE, count = min(PIECE, columns - begin);
    const int rounds = (rows + gridDim.y - 1) / gridDim.y;
    for (int round = 0; round < rounds; round++) {
        const int row = round * gridDim.y + blockIdx.y;
        const bool has = row < rows;
        const size_t at = size_t(row) * columns + begin;
        float2* parts = workspace + size_t(row) * gridDim.x;
        float m = -3e38f, sum = 0;
        for (int i = threadIdx.x; has && i < count; i += THREADS) m = fmaxf(m, kept[i] = float(x[at + i]));
        m = of_block(m, -3e38f, cg::greater<float>());
        for (int i = threadIdx.x; has && i < count; i += THREADS) sum += kept[i] = exp2_of((kept[i] - m) * LOG2E);
        sum = of_block(sum, 0, cg::plus<float>());
        if (has && threadIdx.x == 0) parts[blockIdx.x] = {m, sum};
        if (gridDim.x > 1) {
            cg::this_grid().sync();
        } else {
            __syncthreads();
        }
        float largest = -3e38f, total = 0;
        for (int i = 0; has && i < gridDim.x; i++) largest = fmaxf(largest, parts[i].x);
        for (int i = 0; has && i < gridDim.x; i++) total += parts[i].y * exp2_of((parts[i].x - largest) * LOG2E);
        const float scale = exp2_of((m - largest) * LOG2E) / total;
        for (int i = threadIdx.x; has && i < count; i += THREADS) out[at + i] = T(kept[i] * scale);
    }
}
