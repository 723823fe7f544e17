// Launch: <<<2, 128>>> float x[1024], float out[256]
__global__ void kernel(const float* x, float* out) {
    const int t = threadIdx.x;
    const float4 four = reinterpret_cast<const float4*>(x)[blockIdx.x * 128 + t];
    float sum = four.x + four.y + four.z + four.w;
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, step);
    if (t % 32 == 0)
        out[blockIdx.x * 4 + t / 32] = sum;
}
