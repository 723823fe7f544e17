// Softmax of each row of x: out[i, j] = exp(x[i, j] - m) / s, where m is the maximum of row i and s is the sum of
// exp(x[i, j] - m) over the row.
//
// x is read once and out is written once. In between, a row stays on the chip. The arithmetic is float32.

#include <cuda_bf16.h>

template <typename T>  // TODO: add what else must be known at compile time, such as how many elements a thread holds
__global__ void softmax(const T* x, T* out, int columns) {
    // TODO: start with one block per row; find its maximum, then its sum, then write; float(x[i]) and T(result) convert
}
