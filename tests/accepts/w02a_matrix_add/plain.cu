__global__ void matrix_add(const float* x, const float* y, float* out, int rows, long long columns,
                           long long x_stride, long long y_stride) {
    const int column = blockIdx.x * 32 + threadIdx.x;
    const int row = blockIdx.y * 8 + threadIdx.y;
    if (row >= rows || column >= columns) return;
    out[row * columns + column] = x[row * x_stride + column] + y[row * y_stride + column];
}
