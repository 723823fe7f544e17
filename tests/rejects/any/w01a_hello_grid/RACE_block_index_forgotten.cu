__global__ void hello_grid(int* out) {
    constexpr int WARP = 32;
    const int n = gridDim.x * blockDim.x;
    const int i = threadIdx.x;
    out[i] = blockIdx.x;
    out[n + i] = threadIdx.x / WARP;
    out[2 * n + i] = threadIdx.x % WARP;
    out[3 * n + i] = i;
}
