// Dependent launch: an RMS norm, and a GEMV that starts to read its matrix while the norm still runs.

#include <cuda_bf16.h>

// Waits until the previous launches have ended and their writes are visible. Without the launch attribute, it returns
// at once.
__device__ void wait_for_previous_grid() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the next launch start when all blocks have reached this call or have exited.
__device__ void launch_dependent_grid() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// h = x * weight / sqrt(mean(x^2) + eps), in one block.
extern "C" __global__ void __launch_bounds__(1024)
normalize(const __nv_bfloat16* x, const __nv_bfloat16* weight, float* h, int k, float eps) {
    // TODO: let the next launch start, then compute h
}

// y = W h, with a warp for each row of W, or for several rows.
extern "C" __global__ void __launch_bounds__(256)
multiply(const __nv_bfloat16* w, const float* h, __nv_bfloat16* y, int n, int k) {
    // TODO: load as much of the row as a lane can hold, wait, then read h and multiply
}
