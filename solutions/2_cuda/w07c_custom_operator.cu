// Softmax of each row of x, y[i, j] = exp(x[i, j] - max) / sum, and its gradient: dx = y * (dy - sum(y * dy)) row by row.
//
// A block computes a row, and its threads keep up to 8192 columns of it in registers. Longer rows are read again.

#include <cuda_bf16.h>

constexpr int THREADS = 256, WARP = 32, WARPS = THREADS / WARP;
constexpr float LOWEST = -3.402823466e38f;  // the smallest finite float, since (-INFINITY) - (-INFINITY) would be NaN

// The elements that a thread loads and stores at a time, up to 16 bytes.
template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Vector { T element[WIDTH]; };

// Reduce a block's values and return the result to every thread. The function is a template, so each op has its own
// array, and a reduction with a different op may follow without a barrier.
template <typename Op>
__device__ float blockReduce(float value, float identity, Op op) {
    __shared__ float warp_values[WARPS];
    for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xffffffff, value, offset));
    if (threadIdx.x % WARP == 0) warp_values[threadIdx.x / WARP] = value;
    __syncthreads();
    value = threadIdx.x % WARP < WARPS ? warp_values[threadIdx.x % WARP] : identity;
    for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xffffffff, value, offset));
    return value;
}

// Four blocks per SM: while one reduces, the others load and store. Without vectors, a thread has 32 addresses and
// comparisons, and gets twice the registers, so that nothing spills.
template <typename T, int WIDTH>
__launch_bounds__(THREADS, WIDTH > 1 ? 4 : 2)
__global__ void softmax_forward(const T* x, T* y, int columns) {
    using V = Vector<T, WIDTH>;
    constexpr int VECTORS = 32 / WIDTH;  // of a row, in a thread's registers
    const long long row_start = (long long)blockIdx.x * columns;
    const V* x_row = reinterpret_cast<const V*>(x + row_start);
    V* y_row = reinterpret_cast<V*>(y + row_start);
    const int vectors = columns / WIDTH;

    V x_reg[VECTORS];
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        if (k * THREADS + threadIdx.x < vectors) x_reg[k] = x_row[k * THREADS + threadIdx.x];
    }
    // This lambda calls another lambda, `use`, with each of the thread's vectors. [&] captures the variables around it.
    const auto for_each_vector = [&](auto use) {
        #pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            if (k * THREADS + threadIdx.x < vectors) use(k * THREADS + threadIdx.x, x_reg[k]);
        }
        for (int v = VECTORS * THREADS + threadIdx.x; v < vectors; v += THREADS) use(v, x_row[v]);
    };
    float max = LOWEST, sum = 0;
    for_each_vector([&](int, V values) { for (T value : values.element) max = fmaxf(max, float(value)); });
    max = blockReduce(max, LOWEST, [](float a, float b) { return fmaxf(a, b); });
    for_each_vector([&](int, V values) { for (T value : values.element) sum += __expf(float(value) - max); });
    sum = blockReduce(sum, 0, [](float a, float b) { return a + b; });
    for_each_vector([&](int v, V values) {
        for (T& value : values.element) value = T(__expf(float(value) - max) / sum);
        y_row[v] = values;
    });
}

template <typename T, int WIDTH>
__launch_bounds__(THREADS, 2)  // a thread holds vectors from two rows in registers, y and dy
__global__ void softmax_backward(const T* y, const T* dy, T* dx, int columns) {
    using V = Vector<T, WIDTH>;
    constexpr int VECTORS = 32 / WIDTH;
    const long long row_start = (long long)blockIdx.x * columns;
    const V *y_row = reinterpret_cast<const V*>(y + row_start), *dy_row = reinterpret_cast<const V*>(dy + row_start);
    V* dx_row = reinterpret_cast<V*>(dx + row_start);
    const int vectors = columns / WIDTH;

    V y_reg[VECTORS], dy_reg[VECTORS];
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        const int v = k * THREADS + threadIdx.x;
        if (v < vectors) y_reg[k] = y_row[v], dy_reg[k] = dy_row[v];
    }
    const auto for_each_vector = [&](auto use) {
        #pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            if (k * THREADS + threadIdx.x < vectors) use(k * THREADS + threadIdx.x, y_reg[k], dy_reg[k]);
        }
        for (int v = VECTORS * THREADS + threadIdx.x; v < vectors; v += THREADS) use(v, y_row[v], dy_row[v]);
    };
    float sum = 0;  // of y * dy over the row
    for_each_vector([&](int, V ys, V dys) {
        for (int i = 0; i < WIDTH; ++i) sum += float(ys.element[i]) * float(dys.element[i]);
    });
    sum = blockReduce(sum, 0, [](float a, float b) { return a + b; });
    for_each_vector([&](int v, V ys, V dys) {
        for (int i = 0; i < WIDTH; ++i) ys.element[i] = T(float(ys.element[i]) * (float(dys.element[i]) - sum));
        dx_row[v] = ys;
    });
}
