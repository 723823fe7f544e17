constexpr float H = 0.25f;

__device__ float acceleration(float x) { return -x * (1 + x * x); }

__global__ void oscillate(const float* x, const unsigned char* steps, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float position = x[i], v = 0;
    for (int left = steps[i]; left > 0; --left) {
        const float v1 = v, a1 = acceleration(position);
        const float v2 = v + H / 2 * a1, a2 = acceleration(position + H / 2 * v1);
        const float v3 = v + H / 2 * a2, a3 = acceleration(position + H / 2 * v2);
        const float v4 = v + H * a3, a4 = acceleration(position + H * v3);
        position += H / 6 * (v1 + 2 * v2 + 2 * v3 + v4);
        v += H / 6 * (a1 + 2 * a2 + 2 * a3 + a4);
    }
    out[i] = position;

    unsigned useless = i;
#pragma unroll 64
    for (int k = 0; k < 1600; ++k) asm volatile("add.u32 %0, %0, 1;" : "+r"(useless));
}
