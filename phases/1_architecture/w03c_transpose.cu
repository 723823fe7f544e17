// Transpose: out[j, i] = in[i, j] for a matrix of rows x columns elements of type T, contiguous on both sides.
//
// Neighboring threads should read neighboring addresses and write neighboring addresses. A tile in shared memory
// changes one order into the other.

#include <cuda_bf16.h>

template <typename T>  // TODO: add what else has to be known at compile time, such as the size of a tile;
                       // TODO: then also write it in the launch: transpose<float, 32>
__global__ void transpose(const T* in, T* out, int rows, int columns) {
    // TODO: start with out[column * rows + row] = in[row * columns + column], and see where sectors are wasted
}
