// Matrix addition: out[row, column] = x[row, column] + y[row, column] for rows x columns float32 elements.
//
// A row of x starts x_stride elements after the previous row, a row of y y_stride elements; out has no gaps.
// Neighboring threads should access neighboring columns. Blocks extend past the last row and past the last column.

__global__ void matrix_add(const float* x, const float* y, float* out, int rows, int columns,
                           long long x_stride, long long y_stride) {
    // TODO: compute this thread's row and column from blockIdx, blockDim and threadIdx, and add where both are inside
}
