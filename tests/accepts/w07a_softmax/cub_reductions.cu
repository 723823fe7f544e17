#include <cub/cub.cuh>
#include <cuda_bf16.h>

template <typename T, int THREADS>
__global__ void softmax(const T* __restrict__ x, T* __restrict__ out, int columns, int kept) {
    using BlockReduce = cub::BlockReduce<float, THREADS>;
    __shared__ typename BlockReduce::TempStorage storage;
    __shared__ float max_of_row, sum_of_row;
    extern __shared__ float row[];
    x += size_t(blockIdx.x) * columns;
    out += size_t(blockIdx.x) * columns;

    float local = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        const float value = x[i];
        if (i < kept) row[i] = value;
        local = fmaxf(local, value);
    }
    const float largest = BlockReduce(storage).Reduce(local, [](float a, float b) { return fmaxf(a, b); });
    if (threadIdx.x == 0) max_of_row = largest;
    __syncthreads();

    local = 0;
    for (int i = threadIdx.x; i < columns; i += THREADS) local += expf((i < kept ? row[i] : float(x[i])) - max_of_row);
    const float total = BlockReduce(storage).Sum(local);
    if (threadIdx.x == 0) sum_of_row = total;
    __syncthreads();

    for (int i = threadIdx.x; i < columns; i += THREADS) {
        out[i] = T(expf((i < kept ? row[i] : float(x[i])) - max_of_row) / sum_of_row);
    }
}
