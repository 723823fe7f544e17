__global__ void gather_rows(const float* table, const long long* index, float* out, int rows,
                            long long columns) {
    const int row = (blockIdx.x * 256 + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    for (int column = lane; column < columns; column += 32) {
        out[row * columns + column] = table[index[row] * columns + column];
    }
}
