#include <cuda_bf16.h>

template <typename T>
__global__ void transpose(const T* in, T* out, long long rows, long long columns) {
    __shared__ T tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = in[row * columns + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}
