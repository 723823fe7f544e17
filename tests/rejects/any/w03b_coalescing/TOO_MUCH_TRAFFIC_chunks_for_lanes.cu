__global__ void gather_rows(const float* table, const long long* index, float* out, int rows, int columns) {
    const int row = (blockIdx.x * 256 + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const int share = (columns + 31) / 32;
    for (int column = lane * share; column < min(columns, (lane + 1) * share); ++column) {
        out[row * columns + column] = table[index[row] * columns + column];
    }
}
