// Launch: <<<1, 32>>> float x[252], float out[32]
__global__ void kernel(const float* x, float* out) {
    const int t = threadIdx.x;
    float sum = 0;
    for (int v = 0; v < 4; ++v) sum += x[8 * t + v];
    out[t] = sum;
}
