#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
    T values[N];
};

enum class Op { kMax, kSum };

template <Op op>
__device__ float all_reduce(float v) {
    __shared__ float of_warp[4];
    auto join = [](float a, float b) {
        if constexpr (op == Op::kMax) return fmaxf(a, b);
        else return a + b;
    };
#pragma unroll
    for (int o = 16; o; o >>= 1) v = join(v, __shfl_xor_sync(~0u, v, o));
    __syncthreads();
    if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x >> 5] = v;
    __syncthreads();
    return join(join(of_warp[0], of_warp[1]), join(of_warp[2], of_warp[3]));
}

template <typename T, int N>
__global__ void softmax(const T* x, T* out, int packs, int kept) {
    using P = Pack<T, N>;
    extern __shared__ uint4 shared[];
    P* held = reinterpret_cast<P*>(shared);
    const P* from = reinterpret_cast<const P*>(x) + (long long)blockIdx.x * packs;
    P* to = reinterpret_cast<P*>(out) + (long long)blockIdx.x * packs;

    float m = -INFINITY;
    for (int i = threadIdx.x; i < packs; i += 128) {
        const P pack = from[i];
        if (i < kept) held[i] = pack;
        for (T value : pack.values) m = fmaxf(m, float(value));
    }
    m = all_reduce<Op::kMax>(m);

    float s = 0;
    for (int i = threadIdx.x; i < packs; i += 128) {
        const P pack = i < kept ? held[i] : from[i];
        for (T value : pack.values) s += __expf(float(value) - m);
    }
    const float scale = __frcp_rn(all_reduce<Op::kSum>(s));

    for (int i = threadIdx.x; i < packs; i += 128) {
        P pack = i < kept ? held[i] : from[i];
        for (T& value : pack.values) value = T(__expf(float(value) - m) * scale);
        to[i] = pack;
    }
}
