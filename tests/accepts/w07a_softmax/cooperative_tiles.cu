#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>

namespace cg = cooperative_groups;

template <typename Operation>
__device__ float over_block(float value, Operation operation, float* of_warp) {
    const auto block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    value = cg::reduce(warp, value, operation);
    if (warp.thread_rank() == 0) of_warp[warp.meta_group_rank()] = value;
    block.sync();
    const auto half = cg::tiled_partition<16>(warp);
    value = cg::reduce(half, of_warp[half.thread_rank()], operation);
    block.sync();
    return value;
}

template <typename T, int HELD>
__global__ void softmax(const T* x, T* out, int columns) {
    __shared__ float of_warp[16];
    const T* from = x + blockIdx.x * (long long)columns;
    T* to = out + blockIdx.x * (long long)columns;
    float held[HELD], largest = -INFINITY, sum = 0;
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int i = k * 512 + threadIdx.x;
        held[k] = i < columns ? float(from[i]) : -INFINITY;
        largest = fmaxf(largest, held[k]);
    }
    for (int i = HELD * 512 + threadIdx.x; i < columns; i += 512) largest = fmaxf(largest, float(from[i]));
    largest = over_block(largest, cg::greater<float>(), of_warp);
#pragma unroll
    for (float& value : held) sum += value = expf(value - largest);
    for (int i = HELD * 512 + threadIdx.x; i < columns; i += 512) sum += expf(float(from[i]) - largest);
    sum = over_block(sum, cg::plus<float>(), of_warp);
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int i = k * 512 + threadIdx.x;
        if (i < columns) to[i] = T(held[k] / sum);
    }
    for (int i = HELD * 512 + threadIdx.x; i < columns; i += 512) to[i] = T(expf(float(from[i]) - largest) / sum);
}
