// Softmax of each row of x, y[i, j] = exp(x[i, j] - max) / sum, and its gradient: dx = y * (dy - sum(y * dy)) row by row.
//
// A block computes a row, and its threads keep the row in registers: up to 8192 columns. Longer rows are read again.

#include <cuda_bf16.h>

constexpr int THREADS = 256, WARP = 32, WARPS = THREADS / WARP;
constexpr float LOWEST = -3.402823466e38f;  // the least float, since (-INFINITY) - (-INFINITY) would be NaN

// The elements that a thread loads and stores at a time, up to 16 bytes.
template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Vector { T element[WIDTH]; };

// Reduce the values of a block, for every thread. Each op has an array of its own, since the function is a template.
template <typename Op>
__device__ float blockReduce(float value, float identity, Op op) {
    __shared__ float of_warp[WARPS];
    for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xffffffff, value, offset));
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    value = threadIdx.x % WARP < WARPS ? of_warp[threadIdx.x % WARP] : identity;
    for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xffffffff, value, offset));
    return value;
}

template <typename T, int WIDTH>
__launch_bounds__(THREADS, WIDTH > 1 ? 4 : 2)  // four blocks per SM: while one reduces, the others load and store
__global__ void softmax_forward(const T* x, T* y, int columns) {
    using V = Vector<T, WIDTH>;
    constexpr int HELD = 32 / WIDTH;  // vectors of a row in the registers of a thread
    const long long first = (long long)blockIdx.x * columns;
    const V* row_in = reinterpret_cast<const V*>(x + first);
    V* row_out = reinterpret_cast<V*>(y + first);
    const int vectors = columns / WIDTH;

    V held[HELD];
    #pragma unroll
    for (int k = 0; k < HELD; ++k) {
        if (k * THREADS + threadIdx.x < vectors) held[k] = row_in[k * THREADS + threadIdx.x];
    }
    const auto for_each_vector = [&](auto use) {
        #pragma unroll
        for (int k = 0; k < HELD; ++k) {
            if (k * THREADS + threadIdx.x < vectors) use(k * THREADS + threadIdx.x, held[k]);
        }
        for (int v = HELD * THREADS + threadIdx.x; v < vectors; v += THREADS) use(v, row_in[v]);
    };
    float max = LOWEST, sum = 0;
    for_each_vector([&](int, V values) { for (T value : values.element) max = fmaxf(max, float(value)); });
    max = blockReduce(max, LOWEST, [](float a, float b) { return fmaxf(a, b); });
    for_each_vector([&](int, V values) { for (T value : values.element) sum += __expf(float(value) - max); });
    sum = blockReduce(sum, 0, [](float a, float b) { return a + b; });
    for_each_vector([&](int v, V values) {
        for (T& value : values.element) value = T(__expf(float(value) - max) / sum);
        row_out[v] = values;
    });
}

template <typename T, int WIDTH>
__launch_bounds__(THREADS, 2)  // two rows are held, y and dy
__global__ void softmax_backward(const T* y, const T* dy, T* dx, int columns) {
    using V = Vector<T, WIDTH>;
    constexpr int HELD = 32 / WIDTH;
    const long long first = (long long)blockIdx.x * columns;
    const V *row_y = reinterpret_cast<const V*>(y + first), *row_dy = reinterpret_cast<const V*>(dy + first);
    V* row_out = reinterpret_cast<V*>(dx + first);
    const int vectors = columns / WIDTH;

    V held_y[HELD], held_dy[HELD];
    #pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int v = k * THREADS + threadIdx.x;
        if (v < vectors) held_y[k] = row_y[v], held_dy[k] = row_dy[v];
    }
    const auto for_each_vector = [&](auto use) {
        #pragma unroll
        for (int k = 0; k < HELD; ++k) {
            if (k * THREADS + threadIdx.x < vectors) use(k * THREADS + threadIdx.x, held_y[k], held_dy[k]);
        }
        for (int v = HELD * THREADS + threadIdx.x; v < vectors; v += THREADS) use(v, row_y[v], row_dy[v]);
    };
    float sum = 0;
    for_each_vector([&](int, V a, V b) {
        for (int i = 0; i < WIDTH; ++i) sum += float(a.element[i]) * float(b.element[i]);
    });
    sum = blockReduce(sum, 0, [](float a, float b) { return a + b; });
    for_each_vector([&](int v, V a, V b) {
        for (int i = 0; i < WIDTH; ++i) a.element[i] = T(float(a.element[i]) * (float(b.element[i]) - sum));
        row_out[v] = a;
    });
}
