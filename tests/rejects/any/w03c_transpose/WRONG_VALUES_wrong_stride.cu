#include <cuda_bf16.h>

template <typename T>
__global__ void transpose(const T* in, T* out, int rows, int columns) {
    const int column = blockIdx.x * 32 + threadIdx.x;
    const int row = blockIdx.y * 32 + threadIdx.y;
    if (row < rows && column < columns) out[column * rows + row] = in[row * rows + column];
}
