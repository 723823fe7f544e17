// Softmax of each row of x: out[i, j] = exp(x[i, j] - m) / s, where m is the maximum of row i and s is the sum of
// exp(x[i, j] - m) over the row.
//
// x is read once and out is written once. In between, a row stays on the chip. The arithmetic is float32.
//
// A block computes a row, and its threads keep the row in registers. A row that does not fit there is read again.

#include <cuda_bf16.h>

constexpr int THREADS = 256, WARP = 32, WARPS = THREADS / WARP;
constexpr float LOWEST = -3.402823466e38f;  // the smallest finite float, since (-INFINITY) - (-INFINITY) would be NaN

// The elements that a thread loads and stores at a time, up to 16 bytes.
template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Vector { T element[WIDTH]; };

// The state of the online softmax: the maximum m_i of the values so far, and the sum l_i of exp(value - m_i).
struct State {
    float m_i = LOWEST, l_i = 0;
};

template <typename V>
__device__ State update(State state, V values) {
    float m_new = state.m_i;
    for (auto value : values.element) m_new = fmaxf(m_new, float(value));
    // alpha rescales the sum to the new maximum. It is 1 unless the maximum rises.
    float alpha = __expf(state.m_i - m_new), l_new = state.l_i * alpha;
    for (auto value : values.element) l_new += __expf(float(value) - m_new);
    return {m_new, l_new};
}

// Combine the states of a warp's lanes: first the maximum over all lanes, then the sums, each rescaled to this maximum.
__device__ State warpReduce(State state) {
    float m_new = state.m_i;
    for (int offset = 16; offset > 0; offset /= 2) m_new = fmaxf(m_new, __shfl_xor_sync(0xffffffff, m_new, offset));
    float l_new = state.l_i * __expf(state.m_i - m_new);
    for (int offset = 16; offset > 0; offset /= 2) l_new += __shfl_xor_sync(0xffffffff, l_new, offset);
    return {m_new, l_new};
}

// Each warp stores its state in shared memory; after one barrier, each warp combines all states. The kernel calls this
// once. A second call would need a barrier first, since some warps may still be reading the states from the first call.
__device__ State blockReduce(State state) {
    __shared__ State states[WARPS];
    const int warp_id = threadIdx.x / WARP, lane_id = threadIdx.x % WARP;
    state = warpReduce(state);
    if (lane_id == 0) states[warp_id] = state;
    __syncthreads();
    return warpReduce(lane_id < WARPS ? states[lane_id] : State{});
}

template <typename T, int WIDTH>
__launch_bounds__(THREADS, 4)  // four blocks per SM: while one reduces, the others load and store
__global__ void softmax(const T* x, T* out, int columns) {
    constexpr int VECTORS = 32 / WIDTH;  // per thread, in registers: a block holds 8192 columns
    using V = Vector<T, WIDTH>;
    const long long row_start = (long long)blockIdx.x * columns;
    const V* x_row = reinterpret_cast<const V*>(x + row_start);
    V* out_row = reinterpret_cast<V*>(out + row_start);
    const int vectors = columns / WIDTH;

    V x_reg[VECTORS];  // in registers, because every index is known when the loops are unrolled
    for (int k = 0; k < VECTORS; ++k) {  // all loads first, so that they are in flight together
        const int v = k * THREADS + threadIdx.x;  // neighboring lanes load neighboring vectors
        for (T& value : x_reg[k].element) value = T(-INFINITY);  // past the end of the row: exp of it is 0
        if (v < vectors) x_reg[k] = x_row[v];
    }
    State state;
    for (V values : x_reg) state = update(state, values);
    for (int v = VECTORS * THREADS + threadIdx.x; v < vectors; v += THREADS) state = update(state, x_row[v]);
    state = blockReduce(state);

    auto normalize = [&](V values) {  // a lambda is a function that can use the variables around it, here the state
        for (T& value : values.element) value = T(__expf(float(value) - state.m_i) / state.l_i);
        return values;
    };
    for (int k = 0; k < VECTORS; ++k) {
        const int v = k * THREADS + threadIdx.x;
        if (v < vectors) out_row[v] = normalize(x_reg[k]);
    }
    for (int v = VECTORS * THREADS + threadIdx.x; v < vectors; v += THREADS) out_row[v] = normalize(x_row[v]);
}
