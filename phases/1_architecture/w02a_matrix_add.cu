// Matrix addition: out[row, column] = x[row, column] + y[row, column] for rows x columns float32 elements.
//
// One row of x begins x_stride elements after the one before it, one of y y_stride elements; out has no gaps.
// Neighbouring threads should touch neighbouring columns. Blocks reach past the last row and past the last column.

__global__ void matrix_add(const float* x, const float* y, float* out, int rows, int columns,
                           long long x_stride, long long y_stride) {
    // TODO: compute this thread's row and column from blockIdx, blockDim and threadIdx, and add where both are inside
}
