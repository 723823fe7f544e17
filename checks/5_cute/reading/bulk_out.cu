// Launch on sm_90a: <<<1, 64>>> float x[64], float out[64]
#include <cuda/ptx>
namespace ptx = cuda::ptx;
// A bulk copy reads shared memory through the asynchronous proxy.
__global__ void kernel(const float* x, float* out) {
    __shared__ alignas(128) float tile[64];
    const int t = threadIdx.x;
    tile[t] = 2 * x[t];
    __syncthreads();
    if (t == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, tile, 256);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}
