__global__ void gather_rows(const float* table, const long long* index, float* out, int rows, int columns) {
    const int row = blockIdx.x * 256 + threadIdx.x;
    if (row >= rows) return;
    for (int column = 0; column < columns; ++column) {
        out[row * columns + column] = table[index[row] * columns + column];
    }
}
