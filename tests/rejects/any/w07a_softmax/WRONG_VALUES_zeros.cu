#include <cuda_bf16.h>

template <typename T>
__global__ void softmax(const T* x, T* out, int columns) {
    out += blockIdx.x * (long long)columns;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = T(0.0f);
}
