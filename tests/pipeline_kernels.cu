// A producer warp and a consumer warp: out[i] = the sum of the tiles' elements i, through a ring of stages.

#include <cuda/ptx>

namespace ptx = cuda::ptx;

constexpr int TILE = 32, MOST = 4;

__global__ void sum(const float* x, float* out, int tiles, int stages) {
    __shared__ alignas(128) float stage[MOST][TILE];
    __shared__ unsigned long long full[MOST], empty[MOST];
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) {
            ptx::mbarrier_init(&full[s], 1);
            ptx::mbarrier_init(&empty[s], TILE);
        }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    if (threadIdx.x == TILE) {
        for (int i = 0; i < tiles; ++i) {
            const int s = i % stages;
            while (!ptx::mbarrier_try_wait_parity(&empty[s], i / stages % 2 ^ 1)) {}
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], 4 * TILE);
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage[s], x + i * TILE, 4 * TILE, &full[s]);
        }
    } else if (threadIdx.x < TILE) {
        float total = 0;
        for (int i = 0; i < tiles; ++i) {
            const int s = i % stages;
            while (!ptx::mbarrier_try_wait_parity(&full[s], i / stages % 2)) {}
            total += stage[s][threadIdx.x];
            ptx::mbarrier_arrive(&empty[s]);
        }
        out[blockIdx.x * TILE + threadIdx.x] = total;
    }
}

// Two warps that take turns: warp 0 first, each lets the other go on.
__global__ void turns(float* out, int rounds) {
    const int warp = threadIdx.x / 32;
    if (warp == 1) asm volatile("bar.arrive 1, 64;" ::: "memory");
    for (int i = 0; i < rounds; ++i) {
        asm volatile("bar.sync %0, 64;" ::"r"(1 + warp) : "memory");
        out[2 * i + warp] = i;
        asm volatile("bar.arrive %0, 64;" ::"r"(2 - warp) : "memory");
    }
}
