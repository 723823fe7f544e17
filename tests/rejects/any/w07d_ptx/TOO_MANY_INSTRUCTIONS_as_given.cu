// The stub with nothing changed.

constexpr int EACH = 4;  // elements that a thread loads before it computes

__global__ void hardswish(const float* x, float* out, long long rows, long long columns, long long stride) {
    const long long threads = (long long)gridDim.x * blockDim.x;
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (long long first = thread; first < rows * columns; first += EACH * threads) {
        float taken[EACH];
        int count = 0;
        for (long long i = first; i < rows * columns && count < EACH; i += threads)
            taken[count++] = x[i / columns * stride + i % columns];
        #pragma unroll 1
        for (int k = 0; k < count; ++k)
            out[first + k * threads] = taken[k] * fminf(fmaxf(taken[k] + 3, 0), 6) / 6;
    }
}
