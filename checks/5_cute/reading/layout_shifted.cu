// Launch: <<<1, 32>>> float x[131], float out[32]
__global__ void kernel(const float* x, float* out) {
    const int t = threadIdx.x;
    float sum = 0;
    for (int v = 0; v < 4; ++v) sum += x[t + 33 * v];
    out[t] = sum;
}
