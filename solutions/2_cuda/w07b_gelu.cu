// GELU: out[i] = x[i] * Phi(x[i]), where Phi is the distribution function of the normal distribution.
//
// Phi(x) is (1 + erf(x / sqrt(2))) / 2. Its approximation is (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2.
//
// A thread loads 16 bytes at once if the addresses allow it. The arithmetic is float32.

#include <cuda_bf16.h>

template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Vector {
    T element[WIDTH];
};

// Off by one unit in the last place. 1 / x, rounded correctly, takes several instructions.
__device__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// x * Phi(x) = max(x, 0) - |x| * Phi(-|x|), where Phi(-|x|) is the normal density times a polynomial, off by at most
// 7.5e-8: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.2.17. erff is no better here and takes
// more instructions.
__device__ float gelu_by_erf(float x) {
    const float size = fabsf(x), t = reciprocal(1 + 0.23164189f * size);
    const float polynomial =
        t * (0.12741480f + t * (-0.14224837f + t * (0.71070687f + t * (-0.72657601f + t * 0.53070271f))));
    return fmaxf(x, 0) - size * polynomial * __expf(-0.5f * x * x);
}

// (1 + tanh(z)) / 2 = 1 / (1 + exp(-2z)): nothing cancels where tanh is near -1.
__device__ float gelu_by_tanh(float x) {
    const float z = 0.79788456f * (x + 0.044715f * x * x * x);
    return x * reciprocal(1 + __expf(-2 * z));
}

template <bool TANH, typename T>
__device__ T gelu_of(T x) {
    return T(TANH ? gelu_by_tanh(float(x)) : gelu_by_erf(float(x)));
}

template <typename T, bool TANH, int WIDTH>
__global__ void gelu(const T* x, T* out, long long n) {
    using V = Vector<T, WIDTH>;
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long vectors = n / WIDTH;
    if (i < vectors) {
        V values = reinterpret_cast<const V*>(x)[i];
        for (T& value : values.element) value = gelu_of<TANH>(value);
        reinterpret_cast<V*>(out)[i] = values;
    }

    const long long rest = vectors * WIDTH + i;  // the elements outside full vectors, one per thread
    if (rest < n) out[rest] = gelu_of<TANH>(x[rest]);
}
