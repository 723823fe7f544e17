// Launch: <<<1, 64>>> float x[256], float out[256]
#include <cuda_pipeline_primitives.h>
// Until a thread has waited for its copy, the destination counts as uninitialized.
__global__ void kernel(const float* x, float* out) {
    __shared__ float tile[2][64];
    const int t = threadIdx.x;
    __pipeline_memcpy_async(&tile[0][t], &x[t], 4);
    __pipeline_commit();
    for (int step = 0; step < 4; ++step) {
        if (step < 3) {
            __pipeline_memcpy_async(&tile[(step + 1) % 2][t], &x[(step + 1) * 64 + t], 4);
            __pipeline_commit();
        }
        __pipeline_wait_prior(1);
        __syncthreads();
        out[step * 64 + t] = tile[step % 2][63 - t];
        __syncthreads();
    }
}
