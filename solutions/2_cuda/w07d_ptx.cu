// Hardswish: out[r, c] = x[r, c] * min(max(x[r, c] + 3, 0), 6) / 6. Rows of x start `stride` elements apart, rows of
// out `columns`.
//
// A thread stays in its columns and walks down the rows, so its pointers are computed once and then only incremented.

__device__ float hardswished(float x) { return x * fminf(fmaxf(x + 3, 0), 6) * (1.0f / 6); }

__device__ float4 hardswished(float4 x) {
    return {hardswished(x.x), hardswished(x.y), hardswished(x.z), hardswished(x.w)};
}

// Vector: float4 if 16-byte accesses are possible in every row of x and out, else float.
template <typename Vector>
__global__ void hardswish(const float* __restrict__ x, float* __restrict__ out, int rows, int columns,
                          long long stride) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    const int column = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (column >= columns) return;
    const int first = blockIdx.y * blockDim.y + threadIdx.y;
    const int step = gridDim.y * blockDim.y;
    const float* from = x + first * stride + column;
    float* to = out + (long long)first * columns + column;
    for (int row = first; row < rows; row += step) {
        *reinterpret_cast<Vector*>(to) = hardswished(*reinterpret_cast<const Vector*>(from));
        from += step * stride;
        to += (long long)step * columns;
    }
}
