// Launch: <<<2, 64>>> float x[128], float out[128]
#include <cuda_pipeline_primitives.h>
// Until a thread has waited for its copy, the destination counts as uninitialized.
__global__ void kernel(const float* x, float* out) {
    __shared__ float tile[64];
    const int t = threadIdx.x, begin = blockIdx.x * 64;
    __pipeline_memcpy_async(&tile[t], &x[begin + t], 4);
    __pipeline_commit();
    __syncthreads();
    out[begin + t] = tile[63 - t];
}
