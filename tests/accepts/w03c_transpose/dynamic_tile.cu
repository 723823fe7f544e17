#include <cuda_bf16.h>

template <typename T>
struct SharedMemory {
    __device__ operator T*() {
        extern __shared__ __align__(sizeof(float)) unsigned char bytes[];
        return reinterpret_cast<T*>(bytes);
    }
};

template <typename T>
__global__ void transpose(const T* __restrict__ x, T* __restrict__ out, long long rows, long long columns) {
    T* tile = SharedMemory<T>();
    const long long top = blockIdx.x * 32ll, left = blockIdx.y * 32ll;
    for (unsigned y = threadIdx.y; y < 32; y += blockDim.y) {
        const long long row = top + y, column = left + threadIdx.x;
        if (row < rows && column < columns) tile[y * 33 + threadIdx.x] = x[row * columns + column];
    }
    __syncthreads();
    for (unsigned y = threadIdx.y; y < 32; y += blockDim.y) {
        const long long row = top + threadIdx.x, column = left + y;
        if (row < rows && column < columns) out[column * rows + row] = tile[threadIdx.x * 33 + y];
    }
}
