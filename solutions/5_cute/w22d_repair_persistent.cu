// Four kernels that compute out[tile] = the sum over the steps of x[tile], repaired.
// x is tiles x steps x 128 in float32.

#include <cooperative_groups.h>
#include <cuda/ptx>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int COLS = 128;  // threads in a warp group
constexpr int STAGES = 2;
constexpr int BYTES = COLS * sizeof(float);

// Wait at, or only arrive at, the named barrier `id` of `threads` threads.
__device__ void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- persistent ----

// Thread 128 copies, and threads 0 to 127 add up. A block takes every gridDim.x-th tile.
__global__ void persistent(const float* x, float* out, int tiles, int steps) {
    __shared__ alignas(128) float smem[STAGES][COLS];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            ptx::mbarrier_init(&full[stage], 1);
            ptx::mbarrier_init(&empty[stage], COLS);
        }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    if (threadIdx.x == COLS) {
        int count = 0;  // the copies so far, of all tiles
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            for (int step = 0; step < steps; ++step, ++count) {
                const int stage = count % STAGES, phase = count / STAGES % 2;
                while (!ptx::mbarrier_try_wait_parity(&empty[stage], phase ^ 1)) {}
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[stage],
                                               BYTES);
                const float* src = x + (tile * steps + step) * COLS;
                ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, smem[stage], src, BYTES, &full[stage]);
            }
        }
    } else if (threadIdx.x < COLS) {
        int count = 0;  // like the producer's count, it continues from tile to tile
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            float acc = 0.0f;
            for (int step = 0; step < steps; ++step, ++count) {
                const int stage = count % STAGES, phase = count / STAGES % 2;
                while (!ptx::mbarrier_try_wait_parity(&full[stage], phase)) {}
                acc += smem[stage][threadIdx.x];
                ptx::mbarrier_arrive(&empty[stage]);
            }
            out[tile * COLS + threadIdx.x] = acc;
        }
    }
}

// ---- epilogue ----

// A bulk copy stores the sums, and overlaps with the loads of the next tile.
__global__ void epilogue(const float* x, float* out, int tiles, int steps) {
    __shared__ alignas(128) float result[COLS];
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float acc = 0.0f;
        for (int step = 0; step < steps; ++step) acc += x[(tile * steps + step) * COLS + threadIdx.x];
        // No thread writes result before the previous tile's copy has read it.
        if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
        __syncthreads();
        result[threadIdx.x] = acc;
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (threadIdx.x == 0) {
            ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + tile * COLS, result, BYTES);
            ptx::cp_async_bulk_commit_group();
        }
    }
    if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
}

// ---- pingpong ----

// Two warp groups take turns. Group 0 has the even tiles and group 1 the odd tiles, and each releases the other.
__global__ void pingpong(const float* x, float* out, int tiles, int steps) {
    const int group = threadIdx.x / COLS, col = threadIdx.x % COLS;
    if (group == 1) named_arrive(1, 2 * COLS);  // group 0 starts
    for (int tile = group; tile < tiles; tile += 2) {
        named_sync(1 + group, 2 * COLS);
        float acc = 0.0f;
        for (int step = 0; step < steps; ++step) acc += x[(tile * steps + step) * COLS + col];
        out[tile * COLS + col] = acc;
        named_arrive(2 - group, 2 * COLS);
    }
}

// ---- cluster ----

// Each block of a cluster adds up every second step. Block 0 adds the sums in the shared memory of block 1 to its own.
__global__ void __cluster_dims__(2) cluster(const float* x, float* out, int tiles, int steps) {
    __shared__ float part[COLS];
    const cg::cluster_group blocks = cg::this_cluster();
    const int tile = blockIdx.x / 2, rank = blocks.block_rank();
    float acc = 0.0f;
    for (int step = rank; step < steps; step += 2) acc += x[(tile * steps + step) * COLS + threadIdx.x];
    part[threadIdx.x] = acc;
    blocks.sync();
    if (rank == 0) out[tile * COLS + threadIdx.x] = acc + *blocks.map_shared_rank(part + threadIdx.x, 1);
    blocks.sync();  // block 1 does not end before its shared memory has been read
}
