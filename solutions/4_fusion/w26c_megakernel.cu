// Megakernel: the attention half of a decoder layer for one token, as one launch that executes a table of tasks.

#include <cuda_bf16.h>

constexpr int WARP = 32, THREADS = 256, WARPS = THREADS / WARP, HEAD = 64, ROWS = 16, MAX_COLUMNS = 64 * HEAD;
constexpr int VECTOR = 8;                // bfloat16 values of 16 bytes
constexpr int LANES = HEAD / VECTOR;     // lanes that hold a token's key or value
constexpr int GROUPS = THREADS / LANES;  // groups of such lanes in a block
constexpr int AHEAD = 8;                 // vectors of a row, or tokens, that each lane loads before it waits
constexpr int CHUNK = AHEAD * GROUPS;    // tokens that a block loads at a time
enum Operation { NORM, PROJECT, ATTEND, OUTPUT };

struct Task {
    int operation, index, wait_counter, wait_value, signal_counter;
};

// Returns the sum over neighboring lanes.
__device__ float lane_sum(float value, int lanes = WARP) {
    for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

// Waits until a counter has reached a value. Writes before the counter's additions are visible then.
__device__ void wait_for(const int* counter, int value) {
    if (threadIdx.x == 0) {
        int current;
        do asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(current) : "l"(counter) : "memory");
        while (current < value);
    }
    __syncthreads();  // the other threads continue after thread 0
}

// Adds 1 to a counter, after all writes by the threads of this block.
__device__ void signal(int* counter) {
    __syncthreads();  // all threads have written
    if (threadIdx.x == 0) asm volatile("red.release.gpu.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ void unpack(uint4 vector, float (&values)[VECTOR]) {
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&vector);
    for (int i = 0; i < VECTOR; ++i) values[i] = __bfloat162float(i % 2 ? pairs[i / 2].y : pairs[i / 2].x);
}

__device__ void load(const float* from, float (&values)[VECTOR]) {
    const float4 low = reinterpret_cast<const float4*>(from)[0], high = reinterpret_cast<const float4*>(from)[1];
    values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
    values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
}

__device__ float dot(uint4 vector, const float (&factors)[VECTOR]) {
    float values[VECTOR], sum = 0;
    unpack(vector, values);
    for (int i = 0; i < VECTOR; ++i) sum += values[i] * factors[i];
    return sum;
}

// h = x * weight / sqrt(mean(x^2) + eps). All loads are in flight at once.
__device__ void norm(const float* x, const float* weight, float* h, int columns, float eps) {
    __shared__ float sums[WARPS];
    float values[MAX_COLUMNS / THREADS], weights[MAX_COLUMNS / THREADS], sum = 0, sum_of_squares = 0;
#pragma unroll
    for (int j = 0; j < MAX_COLUMNS / THREADS; ++j) {
        const int i = j * THREADS + threadIdx.x;
        values[j] = i < columns ? x[i] : 0, weights[j] = i < columns ? weight[i] : 0;
        sum += values[j] * values[j];
    }
    sums[threadIdx.x / WARP] = lane_sum(sum);
    __syncthreads();
    for (int warp = 0; warp < WARPS; ++warp) sum_of_squares += sums[warp];
    const float scale = rsqrtf(sum_of_squares / columns + eps);
#pragma unroll
    for (int j = 0; j < MAX_COLUMNS / THREADS; ++j) {
        const int i = j * THREADS + threadIdx.x;
        if (i < columns) h[i] = values[j] * scale * weights[j];
    }
}

// out[row] = w[row] * h, plus residual[row] if there is one, for ROWS rows. A warp's two rows share the loads of h.
__device__ void multiply(const __nv_bfloat16* w, const float* h, const float* residual, float* out, int index,
                         int columns, const int* counter, int value) {
    const int row = ROWS * index + threadIdx.x / WARP, lane = threadIdx.x % WARP, count = columns / VECTOR;
    const uint4* upper_row = reinterpret_cast<const uint4*>(w + (long long)row * columns);
    const uint4* lower_row = upper_row + WARPS * count;
    uint4 upper[AHEAD], lower[AHEAD];
    // No task writes w, so these loads are in flight while the block waits.
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) {
        const int i = j * WARP + lane;
        if (i < count) upper[j] = upper_row[i], lower[j] = lower_row[i];
    }
    wait_for(counter, value);
    float upper_sum = 0, lower_sum = 0;
    for (int first = lane; first < count; first += AHEAD * WARP) {
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            const int i = first + j * WARP, next = i + AHEAD * WARP;
            if (i >= count) break;
            float factors[VECTOR];
            load(h + VECTOR * i, factors);
            upper_sum += dot(upper[j], factors), lower_sum += dot(lower[j], factors);
            if (next < count) upper[j] = upper_row[next], lower[j] = lower_row[next];
        }
    }
    upper_sum = lane_sum(upper_sum), lower_sum = lane_sum(lower_sum);
    if (lane == 0) out[row] = upper_sum + (residual ? residual[row] : 0);
    if (lane == 0) out[row + WARPS] = lower_sum + (residual ? residual[row + WARPS] : 0);
}

// Attention of one head to the cached tokens and the new token. A group of lanes takes every 32nd token.
__device__ void attend(const float* qkv, const __nv_bfloat16* keys, const __nv_bfloat16* values, float* out, int head,
                       int tokens, int columns, const int* counter, int value) {
    __shared__ float maxima[WARPS], sums[WARPS], parts[WARPS][HEAD];
    const int group = threadIdx.x / LANES, column = HEAD * head + VECTOR * (threadIdx.x % LANES);
    uint4 k[AHEAD] = {}, v[AHEAD] = {};
    // No task writes the caches, so the first loads are in flight while the block waits.
    const auto fetch = [&](uint4& vector, const __nv_bfloat16* cache, unsigned token) {
        if (token < tokens) vector = *reinterpret_cast<const uint4*>(cache + token * columns + column);
    };
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) fetch(k[j], keys, group + j * GROUPS), fetch(v[j], values, group + j * GROUPS);
    wait_for(counter, value);
    float q[VECTOR], new_key[VECTOR], terms[VECTOR], acc[VECTOR], m_i = 0, l_i = 1;
    load(qkv + column, q), load(qkv + columns + column, new_key), load(qkv + 2 * columns + column, acc);
    for (int i = 0; i < VECTOR; ++i) m_i += (q[i] *= 0.125f) * new_key[i];  // 1 / sqrt(HEAD)
    m_i = lane_sum(m_i, LANES);
    if (group > 0) {  // the new token belongs to group 0
        m_i = -1e30f, l_i = 0;
        for (int i = 0; i < VECTOR; ++i) acc[i] = 0;
    }
    for (int first = group; first < tokens + group; first += CHUNK) {
        float scores[AHEAD], m_new = m_i;
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            scores[j] = lane_sum(dot(k[j], q), LANES);
            if (first + j * GROUPS >= tokens) scores[j] = -INFINITY;
            m_new = fmaxf(m_new, scores[j]);
            fetch(k[j], keys, first + j * GROUPS + CHUNK);
        }
        const float alpha = __expf(m_i - m_new);
        m_i = m_new, l_i *= alpha;
        for (int i = 0; i < VECTOR; ++i) acc[i] *= alpha;
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            const float p = __expf(scores[j] - m_i);
            unpack(v[j], terms);
            fetch(v[j], values, first + j * GROUPS + CHUNK);
            l_i += p;
            for (int i = 0; i < VECTOR; ++i) acc[i] += p * terms[i];
        }
    }
    for (int step = LANES; step < WARP; step *= 2) {  // add up the groups of a warp
        const float m_new = fmaxf(m_i, __shfl_xor_sync(~0u, m_i, step)), alpha = __expf(m_i - m_new);
        m_i = m_new, l_i *= alpha;
        l_i += __shfl_xor_sync(~0u, l_i, step);
        for (int i = 0; i < VECTOR; ++i) acc[i] *= alpha, acc[i] += __shfl_xor_sync(~0u, acc[i], step);
    }
    const int warp = threadIdx.x / WARP;
    maxima[warp] = m_i, sums[warp] = l_i;
    if (group % (WARP / LANES) == 0)
        for (int i = 0; i < VECTOR; ++i) parts[warp][VECTOR * (threadIdx.x % LANES) + i] = acc[i];
    __syncthreads();
    if (threadIdx.x < HEAD) {
        float most = -INFINITY, total = 0, result = 0;
        for (int w = 0; w < WARPS; ++w) most = fmaxf(most, maxima[w]);
        for (int w = 0; w < WARPS; ++w) {
            total += sums[w] * __expf(maxima[w] - most);
            result += parts[w][threadIdx.x] * __expf(maxima[w] - most);
        }
        out[HEAD * head + threadIdx.x] = result / total;
    }
}

// Two blocks on each SM leave 128 registers to a thread, for the loads in flight.
// state: the number of the next task, then the counters.
extern "C" __global__ void __launch_bounds__(256, 2)
megakernel(const Task* table, int tasks, int* state, const float* x, const float* weight, const __nv_bfloat16* wqkv,
           const __nv_bfloat16* keys, const __nv_bfloat16* values, const __nv_bfloat16* wo, float* h, float* qkv,
           float* attended, float* out, int tokens, int columns, float eps) {
    __shared__ int next;
    // Blocks take tasks in the order of the table, and a task waits only for earlier rows. So the earliest unfinished
    // task never waits.
    for (;;) {
        __syncthreads();  // all threads have read the last number, and are done with that task's shared memory
        if (threadIdx.x == 0) next = atomicAdd(state, 1);
        __syncthreads();
        if (next >= tasks) return;
        const Task task = table[next];
        int* counters = state + 1;
        const int* counter = counters + task.wait_counter;  // the norm waits for none
        if (task.operation == NORM) norm(x, weight, h, columns, eps);
        if (task.operation == PROJECT) multiply(wqkv, h, nullptr, qkv, task.index, columns, counter, task.wait_value);
        if (task.operation == ATTEND)
            attend(qkv, keys, values, attended, task.index, tokens, columns, counter, task.wait_value);
        if (task.operation == OUTPUT) multiply(wo, attended, x, out, task.index, columns, counter, task.wait_value);
        if (task.signal_counter >= 0) signal(counters + task.signal_counter);
    }
}
