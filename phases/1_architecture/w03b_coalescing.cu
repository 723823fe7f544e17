// Gather: out[r, column] = table[index[r], column] for `rows` rows of `columns` float32 elements each.
//
// The rows may be anywhere in the table, but each row is contiguous.

__global__ void gather_rows(const float* table, const long long* index, float* out, int rows, int columns) {
    // TODO: decide which lanes work on which row, find this thread's row and columns, then copy them
}
