#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// The lanes that hold one value send one of them, which adds for all.
template <typename T>
__device__ void aggregated_increment(int* bins, T value) {
    const unsigned int peers = __match_any_sync(__activemask(), (unsigned int)value);
    const int leader = __ffs(peers) - 1;
    if ((threadIdx.x & 31) == leader) atomicAdd(bins + value, __popc(peers));
}

__global__ void histogram_shared(const unsigned char* __restrict__ x, int* counts, int n) {
    __shared__ int bins[256];
    cg::thread_block block = cg::this_thread_block();
    for (int b = block.thread_rank(); b < 256; b += block.size()) bins[b] = 0;
    block.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        aggregated_increment(bins, __ldg(&x[i]));
    }
    block.sync();
    for (int b = block.thread_rank(); b < 256; b += block.size()) atomicAdd(&counts[b], bins[b]);
}

__global__ void histogram_global(const int* __restrict__ x, int* counts, int n, int bins) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        const int value = __ldg(&x[i]);
        if ((unsigned)value < (unsigned)bins) aggregated_increment(counts, value);
    }
}
