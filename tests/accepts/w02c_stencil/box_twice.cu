constexpr int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

template <int kBlock>
__global__ void box_twice(const float* x, float* out, int64_t n) {
    constexpr int kHalf = 4, kLoads = ceil_div(kBlock + 4 * kHalf, kBlock);
    __shared__ float raw[kLoads * kBlock], once[kLoads * kBlock];
    const int64_t first = int64_t(blockIdx.x) * kBlock - 2 * kHalf;
    for (int k = 0; k < kLoads; ++k) {
        const int i = k * kBlock + threadIdx.x;
        const int64_t at = first + i;
        raw[i] = i < kBlock + 4 * kHalf && 0 <= at && at < n ? x[at] : 0.f;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kBlock + 2 * kHalf; i += kBlock) {
        float sum = 0.f;
        for (int d = 0; d <= 2 * kHalf; ++d) sum += raw[i + d];
        once[i] = sum / 9.f;
    }
    __syncthreads();
    float sum = 0.f;
    for (int d = 0; d <= 2 * kHalf; ++d) sum += once[threadIdx.x + d];
    if (int64_t at = first + 2 * kHalf + threadIdx.x; at < n) out[at] = sum / 9.f;
}
