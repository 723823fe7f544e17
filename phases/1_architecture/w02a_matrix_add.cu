// Matrix addition: out[row, column] = x[row, column] + y[row, column] for rows x columns float32 elements.
//
// Consecutive rows start x_stride elements apart in x and y_stride elements apart in y; out has no gaps.
// Neighboring threads should access neighboring columns. Blocks may extend past the last row and the last column.

__global__ void matrix_add(const float* x, const float* y, float* out, int rows, int columns,
                           long long x_stride, long long y_stride) {
    // TODO: compute this thread's row and column from blockIdx, blockDim and threadIdx, and add where both are inside
}
