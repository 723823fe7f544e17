__global__ void add(size_t n, const float x[], const float y[], float z[]) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) z[i] = x[i] + y[i];
}
