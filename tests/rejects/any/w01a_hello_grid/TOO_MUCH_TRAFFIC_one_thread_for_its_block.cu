__global__ void hello_grid(int* out) {
    const int n = gridDim.x * blockDim.x;
    if (threadIdx.x != 0) return;
    for (int t = 0; t < blockDim.x; ++t) {
        const int i = blockIdx.x * blockDim.x + t;
        out[i] = blockIdx.x;
        out[n + i] = t / 32;
        out[2 * n + i] = t % 32;
        out[3 * n + i] = i;
    }
}
