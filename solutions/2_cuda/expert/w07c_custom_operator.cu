// Softmax of each row of x, y[i, j] = exp(x[i, j] - max) / sum, and its gradient: dx = y * (dy - sum(y * dy)) row by row.
//
// A block computes a row. Inputs are read once, up to THREADS * HELD vectors per row; further vectors are read again.

#include <cuda_bf16.h>

constexpr int WARP = 32;
constexpr float LOWEST = -3.402823466e38f;

template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Vector {
    T element[WIDTH];
};

struct Sum {
    static constexpr float NONE = 0;
    __device__ float operator()(float a, float b) const { return a + b; }
};

struct Max {
    static constexpr float NONE = LOWEST;
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Reduce the block's values and return the result to every thread. warp_values is used once.
template <int THREADS, typename Op>
__device__ float block_reduce(float value, Op op, float* warp_values) {
    for (int step = WARP / 2; step > 0; step /= 2) value = op(value, __shfl_xor_sync(0xffffffff, value, step));
    const int lane = threadIdx.x % WARP;
    if (lane == 0) warp_values[threadIdx.x / WARP] = value;
    __syncthreads();
    value = lane < THREADS / WARP ? warp_values[lane] : Op::NONE;
    for (int step = WARP / 2; step > 0; step /= 2) value = op(value, __shfl_xor_sync(0xffffffff, value, step));
    return value;
}

// This thread's view of a row. Its first HELD vectors are kept in registers.
template <typename V, int THREADS, int HELD>
struct Row {
    const V* vectors;
    alignas(16) V x_reg[HELD];

    __device__ Row(const void* row, int count) : vectors(static_cast<const V*>(row)) {
#pragma unroll
        for (int k = 0; k < HELD; ++k) {
            if (k * THREADS + threadIdx.x < count) x_reg[k] = vectors[k * THREADS + threadIdx.x];
        }
    }

    // From here on, make the compiler convert the elements again. It would keep them as float, in twice the registers.
    __device__ void convert_again() {
        unsigned* words = reinterpret_cast<unsigned*>(x_reg);
#pragma unroll
        for (int w = 0; w < int(sizeof x_reg / sizeof *words); ++w) asm volatile("" : "+r"(words[w]));
    }

    __device__ V at(int v, int k) const { return k < HELD ? x_reg[k] : vectors[v]; }
};

// Call use(v, k) for each vector v of this thread, where k counts them. A vector has WIDTH elements.
template <int THREADS, int HELD, int WIDTH, typename Use>
__device__ void for_each_vector(int count, Use use) {
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        if (k * THREADS + threadIdx.x < count) use(k * THREADS + threadIdx.x, k);
    }
    // Besides the held vectors, there are too few registers for several wide loads at once. For single elements, as in
    // odd rows, several loads must be in flight; one load at a time takes 1.8 times longer on an H200.
    constexpr int AT_ONCE = WIDTH > 1 ? 1 : 4;
#pragma unroll AT_ONCE
    for (int v = HELD * THREADS + threadIdx.x; v < count; v += THREADS) use(v, HELD);
}

template <typename T, int WIDTH, int THREADS, int HELD>
__launch_bounds__(THREADS, 1024 / THREADS)
__global__ void softmax_forward(const T* x, T* y, int columns) {
    using V = Vector<T, WIDTH>;
    __shared__ float warp_values[2][WARP];
    const long long first = (long long)blockIdx.x * columns;
    const int count = columns / WIDTH;
    const Row<V, THREADS, HELD> row(x + first, count);
    V* out_row = reinterpret_cast<V*>(y + first);

    float max = LOWEST, sum = 0;
    for_each_vector<THREADS, HELD, WIDTH>(count, [&](int v, int k) {
        for (T value : row.at(v, k).element) max = fmaxf(max, float(value));
    });
    max = block_reduce<THREADS>(max, Max{}, warp_values[0]);
    for_each_vector<THREADS, HELD, WIDTH>(count, [&](int v, int k) {
        for (T value : row.at(v, k).element) sum += __expf(float(value) - max);
    });
    const float scale = 1 / block_reduce<THREADS>(sum, Sum{}, warp_values[1]);
    for_each_vector<THREADS, HELD, WIDTH>(count, [&](int v, int k) {
        V values = row.at(v, k);
        for (T& value : values.element) value = T(__expf(float(value) - max) * scale);
        out_row[v] = values;
    });
}

template <typename T, int WIDTH, int THREADS, int HELD>
__launch_bounds__(THREADS, 1024 / THREADS)
__global__ void softmax_backward(const T* y, const T* dy, T* dx, int columns) {
    using V = Vector<T, WIDTH>;
    __shared__ float warp_values[WARP];
    const long long first = (long long)blockIdx.x * columns;
    const int count = columns / WIDTH;
    Row<V, THREADS, HELD> row(y + first, count), dy_row(dy + first, count);
    V* out_row = reinterpret_cast<V*>(dx + first);

    float sum = 0;
    for_each_vector<THREADS, HELD, WIDTH>(count, [&](int v, int k) {
        const V a = row.at(v, k), b = dy_row.at(v, k);
        for (int i = 0; i < WIDTH; ++i) sum += float(a.element[i]) * float(b.element[i]);
    });
    sum = block_reduce<THREADS>(sum, Sum{}, warp_values);
    row.convert_again();
    dy_row.convert_again();
    for_each_vector<THREADS, HELD, WIDTH>(count, [&](int v, int k) {
        V a = row.at(v, k);
        const V b = dy_row.at(v, k);
        for (int i = 0; i < WIDTH; ++i) a.element[i] = T(float(a.element[i]) * (float(b.element[i]) - sum));
        out_row[v] = a;
    });
}
