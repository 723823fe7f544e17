// Gather: out[r, column] = table[index[r], column] for `rows` rows of `columns` float32 elements each.
//
// The rows lie anywhere in the table, but each of them is contiguous. The lanes of a warp should be in one row.

__global__ void gather_rows(const float* table, const long long* index, float* out, int rows, int columns) {
    // TODO: find this thread's row and where it begins in the row, then copy with the other lanes of its warp
}
