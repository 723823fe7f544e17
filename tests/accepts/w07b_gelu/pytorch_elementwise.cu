#include <cuda_bf16.h>

// A functor per formula, and a loop that loads aligned vectors in full blocks and single elements in the last one.
struct Exact {
    __device__ float operator()(float x) const {
        constexpr float kAlpha = 0.70710678118654752440f;
        return x * 0.5f * (1.0f + ::erf(x * kAlpha));
    }
};

struct Tanh {
    __device__ float operator()(float x) const {
        constexpr float kBeta = 1.41421356237f * 1.12837916710f * 0.5f;
        constexpr float kKappa = 0.044715f;
        const float cube = x * x * x;
        return 0.5f * x * (1.0f + ::tanh(kBeta * (x + kKappa * cube)));
    }
};

template <typename scalar_t, int vec_size>
struct alignas(sizeof(scalar_t) * vec_size) aligned_vector {
    scalar_t val[vec_size];
};

template <typename scalar_t, typename func_t, int vec_size>
__global__ void vectorized_elementwise_kernel(long long n, const scalar_t* in, scalar_t* out) {
    constexpr int work_per_thread = 2 * vec_size, threads = 128, work_per_block = threads * work_per_thread;
    using vec_t = aligned_vector<scalar_t, vec_size>;
    const func_t f{};
    const long long base = (long long)blockIdx.x * work_per_block;
    const long long remaining = n - base;
    if (remaining < work_per_block) {
        for (int k = threadIdx.x; k < remaining; k += threads) out[base + k] = scalar_t(f(float(in[base + k])));
        return;
    }
    const vec_t* from = reinterpret_cast<const vec_t*>(in + base);
    vec_t* to = reinterpret_cast<vec_t*>(out + base);
    vec_t loaded[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) loaded[i] = from[threadIdx.x + i * threads];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < vec_size; ++j) loaded[i].val[j] = scalar_t(f(float(loaded[i].val[j])));
        to[threadIdx.x + i * threads] = loaded[i];
    }
}
