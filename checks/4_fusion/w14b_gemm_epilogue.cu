// The second step of gemm_epilogue's baseline: what follows a product from cuBLAS, 16 bytes of each tensor at a time.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int WIDTH = 8;  // elements of 16 bytes

template <typename T>
struct alignas(16) Vector {
    T at[WIDTH];
};

__device__ float gelu(float x) {
    return x / (1.0f + __expf(x * (-1.5957691f - 0.07135481f * x * x)));
}

// out = gelu(product) * scale[:, None] + residual. A block for each row; columns are a multiple of WIDTH.
template <typename T>
__global__ void epilogue(const T* product, const float* scale, const T* residual, T* out, int columns) {
    const float of_row = scale[blockIdx.x];
    const long long row = (long long)blockIdx.x * columns;
    for (int column = threadIdx.x * WIDTH; column < columns; column += blockDim.x * WIDTH) {
        const auto sum = *(const Vector<T>*)(product + row + column);
        auto made = *(const Vector<T>*)(residual + row + column);
        for (int i = 0; i < WIDTH; ++i) made.at[i] = T(gelu(float(sum.at[i])) * of_row + float(made.at[i]));
        *(Vector<T>*)(out + row + column) = made;
    }
}
