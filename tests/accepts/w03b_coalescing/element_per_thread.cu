// A thread per element of the output, counted over all rows: at one column, each lane of a warp reads another row.
__global__ void gather_rows(const float* table, const long long* index, float* out, long long elements,
                            long long columns) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= elements) return;
    const long long row = i / columns;
    out[i] = table[index[row] * columns + i - row * columns];
}
