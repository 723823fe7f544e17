// Four kernels that add up the rows of x (rows x 128, float32), repaired. out has 128 elements.
// Thread 128 copies rows to a circular buffer of STAGES, and threads 0 to 127 each add up a column.

#include <cuda/ptx>

namespace ptx = cuda::ptx;

constexpr int COLS = 128;
constexpr int STAGES = 2;
constexpr int ROW_BYTES = COLS * sizeof(float);

// ---- bytes ----

// Two copies load a row.
__global__ void bytes(const float* x, float* out, int rows) {
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
        for (int row = 0; row < rows; ++row) {
            const int stage = row % STAGES, phase = row / STAGES % 2;
            while (!ptx::mbarrier_try_wait_parity(&empty[stage], phase ^ 1)) {}
            // Both copies count: the phase ends when all of these bytes have arrived.
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[stage],
                                           ROW_BYTES);
            for (int half = 0; half < 2; ++half) {
                const int col = half * COLS / 2;
                ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, &smem[stage][col], x + row * COLS + col,
                                   ROW_BYTES / 2, &full[stage]);
            }
        }
    } else if (threadIdx.x < COLS) {
        float acc = 0.0f;
        for (int row = 0; row < rows; ++row) {
            const int stage = row % STAGES, phase = row / STAGES % 2;
            while (!ptx::mbarrier_try_wait_parity(&full[stage], phase)) {}
            acc += smem[stage][threadIdx.x];
            ptx::mbarrier_arrive(&empty[stage]);
        }
        out[threadIdx.x] = acc;
    }
}

// ---- arrivals ----

// One copy loads a row.
__global__ void arrivals(const float* x, float* out, int rows) {
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
        for (int row = 0; row < rows; ++row) {
            const int stage = row % STAGES, phase = row / STAGES % 2;
            while (!ptx::mbarrier_try_wait_parity(&empty[stage], phase ^ 1)) {}
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[stage],
                                           ROW_BYTES);
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, smem[stage], x + row * COLS, ROW_BYTES,
                               &full[stage]);
        }
    } else if (threadIdx.x < COLS) {
        float acc = 0.0f;
        for (int row = 0; row < rows; ++row) {
            const int stage = row % STAGES, phase = row / STAGES % 2;
            while (!ptx::mbarrier_try_wait_parity(&full[stage], phase)) {}
            acc += smem[stage][threadIdx.x];
            ptx::mbarrier_arrive(&empty[stage]);
        }
        out[threadIdx.x] = acc;
    }
}

// ---- parity ----

// Like arrivals.
__global__ void parity(const float* x, float* out, int rows) {
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
        for (int row = 0; row < rows; ++row) {
            const int stage = row % STAGES, phase = row / STAGES % 2;
            while (!ptx::mbarrier_try_wait_parity(&empty[stage], phase ^ 1)) {}
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[stage],
                                           ROW_BYTES);
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, smem[stage], x + row * COLS, ROW_BYTES,
                               &full[stage]);
        }
    } else if (threadIdx.x < COLS) {
        float acc = 0.0f;
        for (int row = 0; row < rows; ++row) {
            const int stage = row % STAGES, phase = row / STAGES % 2;
            while (!ptx::mbarrier_try_wait_parity(&full[stage], phase)) {}
            acc += smem[stage][threadIdx.x];
            ptx::mbarrier_arrive(&empty[stage]);
        }
        out[threadIdx.x] = acc;
    }
}

// ---- proxies ----

// One bulk copy stores the sums.
__global__ void proxies(const float* x, float* out, int rows) {
    __shared__ alignas(128) float smem[STAGES][COLS], result[COLS];
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
        for (int row = 0; row < rows; ++row) {
            const int stage = row % STAGES, phase = row / STAGES % 2;
            while (!ptx::mbarrier_try_wait_parity(&empty[stage], phase ^ 1)) {}
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[stage],
                                           ROW_BYTES);
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, smem[stage], x + row * COLS, ROW_BYTES,
                               &full[stage]);
        }
    } else if (threadIdx.x < COLS) {
        float acc = 0.0f;
        for (int row = 0; row < rows; ++row) {
            const int stage = row % STAGES, phase = row / STAGES % 2;
            while (!ptx::mbarrier_try_wait_parity(&full[stage], phase)) {}
            acc += smem[stage][threadIdx.x];
            ptx::mbarrier_arrive(&empty[stage]);
        }
        result[threadIdx.x] = acc;
        ptx::fence_proxy_async(ptx::space_shared);  // each thread, for its own writes, before the barrier
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, result, ROW_BYTES);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
    }
}
