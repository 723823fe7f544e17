// Megakernel: the attention half of a decoder layer for one token, as one launch that executes a table of tasks.

#include <cuda_bf16.h>

constexpr int WARP = 32, THREADS = 256, WARPS = THREADS / WARP, HEAD = 64, ROWS = 16;
enum Operation { NORM, PROJECT, ATTEND, OUTPUT };

struct Task {
    int operation, index, wait_counter, wait_value, signal_counter;
};

__device__ float warp_sum(float value) {
    for (int step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

// Waits until a counter has reached a value. Writes before the counter's additions are visible then.
__device__ void wait_for(const int* counter, int value) {
    if (threadIdx.x == 0) {
        int now;
        do asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
        while (now < value);
    }
    __syncthreads();  // the other threads continue after thread 0
}

// Adds 1 to a counter, after all writes by the threads of this block.
__device__ void signal(int* counter) {
    __syncthreads();  // all threads have written
    if (threadIdx.x == 0) asm volatile("red.release.gpu.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

// h = x * weight / sqrt(mean(x^2) + eps). Each warp adds up all squares, which saves a barrier.
__device__ void norm(const float* x, const float* weight, float* h, int columns, float eps) {
    float sum = 0;
    for (int i = threadIdx.x % WARP; i < columns; i += WARP) sum += x[i] * x[i];
    const float scale = rsqrtf(warp_sum(sum) / columns + eps);
    for (int i = threadIdx.x; i < columns; i += THREADS) h[i] = x[i] * scale * weight[i];
}

// out[row] = w[row] * h, plus residual[row] if there is one, for ROWS rows: two for each warp.
__device__ void multiply(const __nv_bfloat16* w, const float* h, const float* residual, float* out, int index,
                         int columns) {
    for (int row = ROWS * index + threadIdx.x / WARP; row < ROWS * (index + 1); row += WARPS) {
        const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(w + (long long)row * columns);
        float sum = 0;
        for (int i = threadIdx.x % WARP; i < columns / 2; i += WARP) {
            const float2 pair = __bfloat1622float2(pairs[i]);
            sum += pair.x * h[2 * i] + pair.y * h[2 * i + 1];
        }
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0) out[row] = sum + (residual ? residual[row] : 0);
    }
}

// Attention of one head to the cached tokens and the new token. A warp takes every eighth token, a lane two columns.
__device__ void attend(const float* qkv, const __nv_bfloat16* keys, const __nv_bfloat16* values, float* out, int head,
                       int tokens, int columns) {
    __shared__ float maxima[WARPS], sums[WARPS], parts[WARPS][HEAD];
    const int warp = threadIdx.x / WARP, column = 2 * (threadIdx.x % WARP);
    const float* own = qkv + HEAD * head + column;
    const float2 q = {own[0], own[1]};
    float maximum = -INFINITY, sum = 0;
    float2 acc = {0, 0};
    for (int token = warp; token <= tokens; token += WARPS) {
        const long long place = (long long)token * columns + HEAD * head + column;
        float2 k = {own[columns], own[columns + 1]}, v = {own[2 * columns], own[2 * columns + 1]};
        if (token < tokens) {
            k = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(keys + place));
            v = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(values + place));
        }
        const float score = warp_sum(q.x * k.x + q.y * k.y) * 0.125f;  // 1 / sqrt(HEAD)
        const float above = fmaxf(maximum, score), scale = __expf(maximum - above), p = __expf(score - above);
        sum = sum * scale + p;
        acc = {acc.x * scale + p * v.x, acc.y * scale + p * v.y};
        maximum = above;
    }
    parts[warp][column] = acc.x, parts[warp][column + 1] = acc.y;
    maxima[warp] = maximum, sums[warp] = sum;
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

// state: the number of the next task, then the counters.
extern "C" __global__ void __launch_bounds__(256)
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
        if (task.wait_counter >= 0) wait_for(counters + task.wait_counter, task.wait_value);
        if (task.operation == NORM) norm(x, weight, h, columns, eps);
        if (task.operation == PROJECT) multiply(wqkv, h, nullptr, qkv, task.index, columns);
        if (task.operation == ATTEND) attend(qkv, keys, values, attended, task.index, tokens, columns);
        if (task.operation == OUTPUT) multiply(wo, attended, x, out, task.index, columns);
        if (task.signal_counter >= 0) signal(counters + task.signal_counter);
    }
}
