__global__ void matrix_add(const float* x, const float* y, float* out, int rows, int columns,
                           long long x_stride, long long y_stride) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) {
        out[(long long)row * columns + column] = x[row * x_stride + column] + y[row * y_stride + column];
    }
}
