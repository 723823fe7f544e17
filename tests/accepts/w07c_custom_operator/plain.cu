// A block per row, an element per thread and step. The row waits in shared memory, backward together with its gradient.

#include <cuda_bf16.h>

__device__ float block_sum(float value) {
    __shared__ float shared[256];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
        __syncthreads();
    }
    return shared[0];
}

__device__ float block_max(float value) {
    __shared__ float shared[256];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + step]);
        __syncthreads();
    }
    return shared[0];
}

template <typename T>
__global__ void forward(const T* x, T* y, int columns) {
    extern __shared__ float dynamic[];
    T* row = (T*)dynamic;
    x += (size_t)blockIdx.x * columns;
    y += (size_t)blockIdx.x * columns;
    float largest = -INFINITY, sum = 0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x) {
        row[j] = x[j];
        largest = fmaxf(largest, float(row[j]));
    }
    largest = block_max(largest);
    for (int j = threadIdx.x; j < columns; j += blockDim.x) sum += expf(float(row[j]) - largest);
    sum = block_sum(sum);
    for (int j = threadIdx.x; j < columns; j += blockDim.x) y[j] = T(expf(float(row[j]) - largest) / sum);
}

template <typename T>
__global__ void backward(const T* y, const T* dy, T* dx, int columns) {
    extern __shared__ float dynamic[];
    T* row = (T*)dynamic;
    T* upstream = row + columns;
    const size_t first = (size_t)blockIdx.x * columns;
    float sum = 0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x) {
        row[j] = y[first + j];
        upstream[j] = dy[first + j];
        sum += float(row[j]) * float(upstream[j]);
    }
    sum = block_sum(sum);
    for (int j = threadIdx.x; j < columns; j += blockDim.x) {
        dx[first + j] = T(float(row[j]) * (float(upstream[j]) - sum));
    }
}
