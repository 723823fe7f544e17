#include <cuda_bf16.h>

template <typename T, bool TANH>
__global__ void gelu(const T* x, T* out, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = float(x[i]);
        if (TANH) {
            float inner = 0.7978845608f * (v + 0.044715f * v * v * v);
            out[i] = T(0.5f * v * (1.0f + tanhf(inner)));
        } else {
            out[i] = T(0.5f * v * (1.0f + erff(v / 1.41421356f)));
        }
    }
}
