#include <cuda_bf16.h>

template <typename T>
__global__ void softmax(const T* x, T* out, int columns) {
    __shared__ float sum;
    x += blockIdx.x * (long long)columns;
    out += blockIdx.x * (long long)columns;
    float largest = -INFINITY;
    for (int i = 0; i < columns; ++i) largest = fmaxf(largest, float(x[i]));
    float part = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) part += expf(float(x[i]) - largest);
    atomicAdd(&sum, part);
    __syncthreads();
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = T(expf(float(x[i]) - largest) / sum);
}
