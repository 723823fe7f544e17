#include <cuda_bf16.h>

__device__ float reduce(float value, float* shared, bool maximum) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            const float other = shared[threadIdx.x + half];
            shared[threadIdx.x] = maximum ? fmaxf(shared[threadIdx.x], other) : shared[threadIdx.x] + other;
        }
        __syncthreads();
    }
    const float result = shared[0];
    __syncthreads();
    return result;
}

template <typename T>
__global__ void softmax(const T* x, T* out, int columns) {
    __shared__ float shared[256], row[8192];
    x += blockIdx.x * (long long)columns;
    out += blockIdx.x * (long long)columns;
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        const float value = x[i];
        if (i < 8192) row[i] = value;
        largest = fmaxf(largest, value);
    }
    largest = reduce(largest, shared, true);
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf((i < 8192 ? row[i] : float(x[i])) - largest);
    sum = reduce(sum, shared, false);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        out[i] = T(expf((i < 8192 ? row[i] : float(x[i])) - largest) / sum);
    }
}
