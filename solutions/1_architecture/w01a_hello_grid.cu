// Hello, grid: every thread writes its block, its warp, its lane, and its index over the whole grid.
//
// out has four rows of n integers, n threads in all. Column i belongs to the i-th thread of the grid.
// Warps are counted inside their block, lanes inside their warp.

__global__ void hello_grid(int* out) {
    constexpr int WARP = 32;
    const int n = gridDim.x * blockDim.x;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = blockIdx.x;
    out[n + i] = threadIdx.x / WARP;
    out[2 * n + i] = threadIdx.x % WARP;
    out[3 * n + i] = i;
}
