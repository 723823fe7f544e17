#include <cub/cub.cuh>
#include <cuda/atomic>
#include <cuda/std/functional>

template <int THREADS, int ITEMS>
__global__ void sum_kernel(const float* x, float* partials, unsigned* ticket, float* out, int64_t n, int blocks) {
    using BlockReduce = cub::BlockReduce<float, THREADS, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
    __shared__ typename BlockReduce::TempStorage storage;
    __shared__ bool last;
    float items[ITEMS];
    float total = 0;
    for (int64_t tile = blockIdx.x; tile * THREADS * ITEMS < n; tile += blocks) {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            const int64_t i = (tile * ITEMS + k) * THREADS + threadIdx.x;
            items[k] = i < n ? x[i] : 0;
        }
        total += cub::ThreadReduce(items, cuda::std::plus<>{});
    }
    total = BlockReduce(storage).Sum(total);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = total;
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> finished(*ticket);
        last = finished.fetch_add(1, cuda::memory_order_acq_rel) == blocks - 1;
    }
    __syncthreads();
    if (!last) return;
    total = 0;
    for (int i = threadIdx.x; i < blocks; i += THREADS) total += partials[i];
    total = BlockReduce(storage).Sum(total);
    if (threadIdx.x == 0) *out = total;
}
