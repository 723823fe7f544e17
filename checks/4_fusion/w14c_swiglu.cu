// What the baseline of swiglu does between its products from cuBLAS, 16 bytes of each tensor at a time. A block for each
// row; columns of h are a multiple of WIDTH.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int WIDTH = 8;  // elements of 16 bytes

template <typename T>
struct alignas(16) Vector {
    T at[WIDTH];
};

__device__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

// h = silu(gate) * up; a row of both has gate's columns, then those of up.
template <typename T>
__global__ void gated(const T* both, T* h, int columns) {
    const long long row = (long long)blockIdx.x * columns;
    for (int column = threadIdx.x * WIDTH; column < columns; column += blockDim.x * WIDTH) {
        const auto gate = *(const Vector<T>*)(both + 2 * row + column);
        auto up = *(const Vector<T>*)(both + 2 * row + columns + column);
        for (int i = 0; i < WIDTH; ++i) {
            const float g = gate.at[i];
            up.at[i] = T(g * sigmoid(g) * float(up.at[i]));
        }
        *(Vector<T>*)(h + row + column) = up;
    }
}

// The gradients of gate and up, from that of h.
template <typename T>
__global__ void gradients(const T* both, const T* dh, T* out, int columns) {
    const long long row = (long long)blockIdx.x * columns;
    for (int column = threadIdx.x * WIDTH; column < columns; column += blockDim.x * WIDTH) {
        auto gate = *(const Vector<T>*)(both + 2 * row + column);
        auto up = *(const Vector<T>*)(both + 2 * row + columns + column);
        const auto d = *(const Vector<T>*)(dh + row + column);
        for (int i = 0; i < WIDTH; ++i) {
            const float g = gate.at[i], u = up.at[i], s = sigmoid(g), of_h = d.at[i];
            gate.at[i] = T(of_h * u * s * (1.0f + g * (1.0f - s)));
            up.at[i] = T(of_h * g * s);
        }
        *(Vector<T>*)(out + 2 * row + column) = gate;
        *(Vector<T>*)(out + 2 * row + columns + column) = up;
    }
}
