// Launch: <<<2, 128>>> float x[4096], float out[256]
__global__ void kernel(const float* x, float* out) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    const int steps = i / 32;
    float sum = 0;
    #pragma unroll 1
    for (int step = 0; step < steps; ++step)
        sum += x[256 * step + i];
    out[i] = sum;
}
