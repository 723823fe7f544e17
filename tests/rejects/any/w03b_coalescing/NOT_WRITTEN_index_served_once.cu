__global__ void invert(const long long* index, int* wanted_by, int rows) {
    const int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) atomicExch(&wanted_by[index[r]], r);
}

__global__ void scatter_rows(const float* table, const int* wanted_by, float* out, int rows, int columns) {
    const int from = (blockIdx.x * 256 + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (from >= rows || wanted_by[from] < 0) return;
    for (int column = lane; column < columns; column += 32) {
        out[(long long)wanted_by[from] * columns + column] = table[(long long)from * columns + column];
    }
}
