// Launch on sm_90a: <<<1, 64>>> float x[128], float out[128]
#include <cuda/ptx>
namespace ptx = cuda::ptx;
// A bulk copy reads shared memory until its group has been waited for.
__global__ void kernel(const float* x, float* out) {
    __shared__ alignas(128) float tile[64];
    const int t = threadIdx.x;
    for (int step = 0; step < 2; ++step) {
        tile[t] = 2 * x[64 * step + t];
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (t == 0) {
            ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + 64 * step, tile, 256);
            ptx::cp_async_bulk_commit_group();
        }
        __syncthreads();
    }
    if (t == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}
