// A block per row, an element per thread and step, three sweeps forward and two backward.

#include <cuda_bf16.h>

__device__ float block_sum(float value, float* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
        __syncthreads();
    }
    value = shared[0];
    __syncthreads();
    return value;
}

__device__ float block_max(float value, float* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + step]);
        __syncthreads();
    }
    value = shared[0];
    __syncthreads();
    return value;
}

template <typename T>
__global__ void forward(const T* x, T* y, int columns) {
    __shared__ float shared[256];
    extern __shared__ float row[];
    x += (size_t)blockIdx.x * columns;
    y += (size_t)blockIdx.x * columns;
    float largest = -1e38f, sum = 0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x) {
        row[j] = float(x[j]);
        largest = fmaxf(largest, row[j]);
    }
    largest = block_max(largest, shared);
    for (int j = threadIdx.x; j < columns; j += blockDim.x) {
        row[j] = expf(row[j] - largest);
        sum += row[j];
    }
    sum = block_sum(sum, shared);
    for (int j = threadIdx.x; j < columns; j += blockDim.x) y[j] = T(row[j] / sum);
}

template <typename T>
__global__ void backward(const T* y, const T* dy, T* dx, int columns) {
    __shared__ float shared[256];
    const size_t first = (size_t)blockIdx.x * columns;
    float sum = 0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x) sum += float(y[first + j]) * float(dy[first + j]);
    sum = block_sum(sum, shared);
    for (int j = threadIdx.x; j < columns; j += blockDim.x) {
        dx[first + j] = T(float(y[first + j]) * (float(dy[first + j]) - sum));
    }
}
