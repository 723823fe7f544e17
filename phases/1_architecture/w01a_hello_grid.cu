// Hello, grid: every thread writes its block, its warp, its lane, and its index over the whole grid.
//
// out has four rows of n integers, n threads in all. Column i belongs to the i-th thread of the grid.
// Warps are counted inside their block, lanes inside their warp.

__global__ void hello_grid(int* out) {
    const int n = gridDim.x * blockDim.x;
    // TODO: compute this thread's index i over the whole grid, then fill column i of the four rows
}
