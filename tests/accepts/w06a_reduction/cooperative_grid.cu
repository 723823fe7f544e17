#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

template <unsigned THREADS>
__device__ float over_block(float mine) {
    __shared__ float of_warps[THREADS / 32];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    mine = cg::reduce(warp, mine, cg::plus<float>());
    if (warp.thread_rank() == 0) of_warps[warp.meta_group_rank()] = mine;
    block.sync();
    mine = warp.thread_rank() < THREADS / 32 ? of_warps[warp.thread_rank()] : 0.f;
    return cg::reduce(warp, mine, cg::plus<float>());
}

template <unsigned THREADS>
__global__ void grid_reduce(const float* __restrict__ in, float* sums, float* out, size_t n) {
    auto grid = cg::this_grid();
    float mine = 0.f;
    for (size_t i = grid.thread_rank(); i < n; i += grid.size()) mine += in[i];
    mine = over_block<THREADS>(mine);
    if (threadIdx.x == 0) sums[blockIdx.x] = mine;
    grid.sync();
    if (blockIdx.x > 0) return;
    mine = 0.f;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += THREADS) mine += sums[i];
    mine = over_block<THREADS>(mine);
    if (threadIdx.x == 0) *out = mine;
}
