// A program with its host code: out = x + y for arrays of n float32 elements in host memory.

#include <cuda_runtime.h>

__global__ void add(const float* x, const float* y, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

extern "C" cudaError_t add_on_gpu(const float* x, const float* y, float* out, int n, float* milliseconds) {
    return cudaErrorNotSupported;  // TODO: allocate, copy, launch, copy back, time and free, and handle every error
}
