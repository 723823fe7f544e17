#include <cuda_bf16.h>
#include <stdint.h>

template <int LANES, typename Operation>
__device__ float reduce(float value, Operation operation) {
    const unsigned lane = (threadIdx.y * LANES + threadIdx.x) % 32;
    const unsigned mask = LANES == 32 ? 0xffffffffu : 0xffffu << (lane & 16);
#pragma unroll
    for (int step = LANES / 2; step > 0; step >>= 1) {
        value = operation(value, __shfl_xor_sync(mask, value, step, LANES));
    }
    return value;
}

template <typename T, int LANES>
__global__ void softmax(const T* x, T* out, int rows, int columns, int kept) {
    extern __shared__ float shared[];
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float* held = shared + threadIdx.y * kept;
    const T* from = x + row * columns;
    T* to = out + row * columns;
    auto at = [=](int i) { return i < kept ? held[i] : float(from[i]); };

    float largest = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += LANES) {
        const float value = from[i];
        if (i < kept) held[i] = value;
        largest = fmaxf(largest, value);
    }
    largest = reduce<LANES>(largest, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += LANES) sum += expf(at(i) - largest);
    sum = reduce<LANES>(sum, [](float a, float b) { return a + b; });
    for (int i = threadIdx.x; i < columns; i += LANES) to[i] = T(expf(at(i) - largest) / sum);
}
