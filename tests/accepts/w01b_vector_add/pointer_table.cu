// The tensors in a table on the device, as batched BLAS and multi-tensor optimizers have them.
__global__ void add_by_table(float* const* tensors, long long n) {
    const float* x = tensors[0];
    const float* y = tensors[1];
    float* out = tensors[2];
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long long)blockDim.x)
        out[i] = x[i] + y[i];
}
