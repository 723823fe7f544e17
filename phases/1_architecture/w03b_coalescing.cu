// Gather: out[r, column] = table[index[r], column] for `rows` rows of `columns` float32 elements each.
//
// The rows may be anywhere in the table, but each of them is contiguous. The lanes of a warp should share a row.

__global__ void gather_rows(const float* table, const long long* index, float* out, int rows, int columns) {
    // TODO: find the row and the lane of this thread, then copy the row together with the other lanes of the warp
}
