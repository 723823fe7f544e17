#include <cuda_bf16.h>

constexpr int SPLIT = 8192, THREADS = 256;
constexpr float LOG2E = 1.44269504f;

__device__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Maximum and sum of what the threads of a block hold; all of them get both.
__device__ float2 unite(float2 mine) {
    __shared__ float2 shared[THREADS];
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) {
            const float2 a = shared[threadIdx.x], b = shared[threadIdx.x + step];
            const float m = fmaxf(a.x, b.x);
            shared[threadIdx.x] = {m, a.y * exp2_of((a.x - m) * LOG2E) + b.y * exp2_of((b.x - m) * LOG2E)};
        }
        __syncthreads();
    }
    return shared[0];
}

template <typename T>
__device__ float2 of_values(const T* x, int count, float* kept) {
    float m = -3e38f, sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) m = fmaxf(m, kept[i] = float(x[i]));
    for (int i = threadIdx.x; i < count; i += THREADS) sum += exp2_of((kept[i] - m) * LOG2E);
    return unite({m, sum});
}

template <typename T>
__global__ void short_rows(const T* x, T* out, int columns) {
    __shared__ float kept[SPLIT];
    const size_t begin = size_t(blockIdx.x) * columns;
    const float2 row = of_values(x + begin, columns, kept);
    for (int i = threadIdx.x; i < columns; i += THREADS) out[begin + i] = T(exp2_of((kept[i] - row.x) * LOG2E) / row.y);
}

template <typename T>
__global__ void partials(const T* x, float2* workspace, int columns) {
    __shared__ float kept[SPLIT];
    const int begin = blockIdx.x * SPLIT;
    const float2 part = of_values(x + size_t(blockIdx.y) * columns + begin, min(SPLIT, columns - begin), kept);
    if (threadIdx.x == 0) workspace[blockIdx.y * gridDim.x + blockIdx.x] = part;
}

template <typename T>
__global__ void normalize(const T* x, const float2* workspace, T* out, int columns) {
    float2 row = {-3e38f, 0};
    if (threadIdx.x < gridDim.x) row = workspace[blockIdx.y * gridDim.x + threadIdx.x];
    row = unite(row);
    const int end = min(columns, (blockIdx.x + 1) * SPLIT);
    for (int i = blockIdx.x * SPLIT + threadIdx.x; i < end; i += THREADS) {
        const size_t at = size_t(blockIdx.y) * columns + i;
        out[at] = T(exp2_of((float(x[at]) - row.x) * LOG2E) / row.y);
    }
}
