__global__ void hello_grid(int* out) {
    const int n = gridDim.x * blockDim.x;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = blockIdx.x;
    out[n + i] = i / 32;
    out[2 * n + i] = i % 32;
    out[3 * n + i] = i;
}
