// Launch: <<<4, 64>>> float x[250], float out[250], int n = 250
__global__ void kernel(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float here = x[i];
    const float next = x[i + 1];
    out[i] = next - here;
}
