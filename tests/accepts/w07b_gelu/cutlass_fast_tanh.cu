#include <cuda_bf16.h>

__device__ float fast_tanh(float x) {
    float y;
    asm volatile("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The approximate instruction where the result is rounded to bfloat16 anyway, tanhf where it is not.
template <typename T>
struct GELU_taylor {
    __device__ T operator()(T value) const {
        const float z = float(value), k0 = 0.7978845608028654f, k1 = 0.044715f;
        const float argument = k0 * z * (1.0f + k1 * z * z);
        return T(0.5f * z * (1.0f + (sizeof(T) == 2 ? fast_tanh(argument) : tanhf(argument))));
    }
};

template <typename T>
struct GELU {
    __device__ T operator()(T value) const { return T(normcdff(float(value)) * float(value)); }
};

template <typename T, typename Op>
__global__ void apply(const T* in, T* out, long long n) {
    const Op op;
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = op(in[i]);
}
