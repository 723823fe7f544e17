__global__ void gather_rows(const float* table, const long long* index, float* out, int rows, int columns) {
    const int row = (blockIdx.x * 256 + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row < rows && lane < columns) out[row * columns + lane] = table[index[row] * columns + lane];
}
