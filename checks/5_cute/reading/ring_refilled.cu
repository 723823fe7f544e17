// Launch on sm_90a: <<<1, 64>>> float x[256], float out[256]
#include <cuda/ptx>
namespace ptx = cuda::ptx;
// A bulk copy reports its bytes to the mbarrier full; wait(full, p) returns when the phase of parity p is over.
__device__ void wait(unsigned long long* barrier, int parity) { while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {} }
__device__ void fetch(float* to, const float* from, unsigned bytes, unsigned long long* full) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, full, bytes);
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, to, from, bytes, full);
}
__global__ void kernel(const float* x, float* out) {
    __shared__ alignas(128) float tile[2][64];
    __shared__ unsigned long long full[2];
    const int t = threadIdx.x;
    if (t == 0) for (int s = 0; s < 2; ++s) ptx::mbarrier_init(&full[s], 1);
    __syncthreads();
    if (t == 0) for (int s = 0; s < 2; ++s) fetch(tile[s], x + 64 * s, 256, &full[s]);
    for (int step = 0; step < 4; ++step) {
        const int s = step % 2;
        wait(&full[s], step / 2);
        out[64 * step + t] = tile[s][63 - t];
        if (t == 0 && step < 2) fetch(tile[s], x + 64 * (step + 2), 256, &full[s]);
    }
}
