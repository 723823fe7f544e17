// Launch: <<<4, 65>>> float x[257], float out[257]
__global__ void kernel(const float* x, float* out) {
    const int first = blockIdx.x * 64;
    const int i = first + threadIdx.x;
    const float value = x[i];
    if (value > first)
        out[i] = value - first;
}
