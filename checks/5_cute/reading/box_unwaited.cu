// Launch on sm_90a: <<<1, 64>>> float x[256], float out[256]
#include <cuda/ptx>
namespace ptx = cuda::ptx;
// A bulk copy reports its bytes to the mbarrier full.
__device__ void fetch(float* to, const float* from, unsigned bytes, unsigned long long* full) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, full, bytes);
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, to, from, bytes, full);
}
__global__ void kernel(const float* x, float* out) {
    __shared__ alignas(128) float tile[64];
    __shared__ unsigned long long full;
    const int t = threadIdx.x;
    if (t == 0) {
        ptx::mbarrier_init(&full, 1);
        fetch(tile, x, sizeof(tile), &full);
    }
    __syncthreads();
    out[t] = tile[63 - t];
}
