// Gather: out[r, column] = table[index[r], column] for `rows` rows of `columns` float32 elements each.
//
// The rows may be anywhere in the table, but each row is contiguous.
//
// A lane copies one Vector at a time: float4 where rows and addresses are multiples of 16 bytes, else float.

template <typename Vector>
__global__ void gather_rows(const float* table, const long long* index, float* out, int rows, int columns) {
    constexpr int WARP = 32;
    constexpr int STEPS = 4;  // row loads that a lane has in flight; it has none until the index arrives
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    const int lane = threadIdx.x % WARP;
    if (row >= rows) return;

    const Vector* from = reinterpret_cast<const Vector*>(table + index[row] * columns);
    Vector* to = reinterpret_cast<Vector*>(out + (long long)row * columns);
    const int vectors = columns * sizeof(float) / sizeof(Vector);
    for (int begin = lane; begin < vectors; begin += STEPS * WARP) {
        Vector loaded[STEPS];
        for (int step = 0; step < STEPS; ++step) {
            const int v = begin + step * WARP;
            if (v < vectors) loaded[step] = from[v];
        }
        for (int step = 0; step < STEPS; ++step) {
            const int v = begin + step * WARP;
            if (v < vectors) to[v] = loaded[step];
        }
    }
}
