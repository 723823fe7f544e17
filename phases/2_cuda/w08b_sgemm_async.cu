// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// TODO: a kernel that starts the copies of the first stages; then, step by step: wait for the oldest stage, start the
// TODO: copies of a new one, multiply
