// Megakernel: the attention half of a decoder layer for one token, as one launch that executes a table of tasks.

#include <cuda_bf16.h>

enum Operation { NORM, PROJECT, ATTEND, OUTPUT };

struct Task {
    int operation, index, wait_counter, wait_value, signal_counter;
};

// Waits until a counter has reached a value. Writes before the counter's additions are visible then.
__device__ void wait_for(const int* counter, int value) {
    // TODO: one thread polls with ld.acquire.gpu; what orders the other threads of the block after it?
}

// Adds 1 to a counter, after all writes by the threads of this block.
__device__ void signal(int* counter) {
    // TODO: red.release.gpu.add, by one thread, when all threads have written
}

// state: the number of the next task, then the counters.
extern "C" __global__ void __launch_bounds__(256, 2)
megakernel(const Task* table, int tasks, int* state, const float* x, const float* weight, const __nv_bfloat16* wqkv,
           const __nv_bfloat16* keys, const __nv_bfloat16* values, const __nv_bfloat16* wo, float* h, float* qkv,
           float* attended, float* out, int tokens, int columns, float eps) {
    // TODO: take a task, wait for its counter, execute it, add to its counter, until none is left
}
