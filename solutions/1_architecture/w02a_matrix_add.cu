// Matrix addition: out[row, column] = x[row, column] + y[row, column] for rows x columns float32 elements.
//
// Consecutive rows start x_stride elements apart in x and y_stride elements apart in y; out has no gaps.
// Neighboring threads should access neighboring columns. Blocks may extend past the last row and the last column.
//
// One thread loads a Vector from each input: float4 where sizes, strides and addresses allow it, otherwise float.

__device__ float4 operator+(float4 a, float4 b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

template <typename Vector>
__global__ void matrix_add(const float* x, const float* y, float* out, int rows, int columns,
                           long long x_stride, long long y_stride) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    const int column = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    const Vector a = *reinterpret_cast<const Vector*>(x + row * x_stride + column);
    const Vector b = *reinterpret_cast<const Vector*>(y + row * y_stride + column);
    *reinterpret_cast<Vector*>(out + (long long)row * columns + column) = a + b;
}
