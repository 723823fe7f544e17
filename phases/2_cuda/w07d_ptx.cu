// Hardswish: out[r, c] = x[r, c] * min(max(x[r, c] + 3, 0), 6) / 6. Rows of x start `stride` elements apart, rows of
// out `columns`.
//
// This kernel is correct. Rewrite it. You may remove every line that ends in TODO.

constexpr int EACH = 4;  // TODO: elements that a thread loads before it computes

__global__ void hardswish(const float* x, float* out, long long rows, long long columns, long long stride) {  // TODO
    const long long threads = (long long)gridDim.x * blockDim.x;  // TODO
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;  // TODO
    for (long long first = thread; first < rows * columns; first += EACH * threads) {  // TODO
        float taken[EACH];  // TODO: where does ptxas put it, and why?
        int count = 0;  // TODO
        for (long long i = first; i < rows * columns && count < EACH; i += threads)  // TODO
            taken[count++] = x[i / columns * stride + i % columns];  // TODO: 4 bytes, and how many instructions?
        #pragma unroll 1  // TODO
        for (int k = 0; k < count; ++k)  // TODO
            out[first + k * threads] = taken[k] * fminf(fmaxf(taken[k] + 3, 0), 6) / 6;  // TODO
    }  // TODO
}
