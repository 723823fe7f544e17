// GELU: out[i] = x[i] * Phi(x[i]), where Phi is the distribution function of the normal distribution.
//
// Phi(x) is (1 + erf(x / sqrt(2))) / 2. Its approximation is (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2.

#include <cuda_bf16.h>

template <typename T, bool TANH>  // TODO: add how many elements a thread loads at once
__global__ void gelu(const T* x, T* out, long long n) {
    // TODO: start with one element per thread; float(x[i]) and T(result) convert
}
