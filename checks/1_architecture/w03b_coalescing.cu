// The baseline of coalescing: one thread per row, so that the lanes of a warp are a row apart.

__global__ void gather_rows(const float* table, const long long* index, float* out, int rows, int columns) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* from = table + index[row] * columns;
    float* to = out + (long long)row * columns;
    for (int column = 0; column < columns; ++column) to[column] = from[column];
}
