#include <cuda_bf16.h>

#define GELU_SCALING_FACTOR sqrtf(2.0f / M_PI)

template <class ElementType>
struct alignas(16) Packed128 {
    static constexpr int size = sizeof(int4) / sizeof(ElementType);
    ElementType payload[size];
    __device__ ElementType& operator[](int index) { return payload[index]; }
};

template <class T>
__device__ Packed128<T> load128cs(const T* address) {
    int4 bits = __ldcs(reinterpret_cast<const int4*>(address));
    return *reinterpret_cast<Packed128<T>*>(&bits);
}

template <class T>
__device__ void store128(T* target, Packed128<T> value) {
    *reinterpret_cast<int4*>(target) = *reinterpret_cast<int4*>(&value);
}

template <class T>
__device__ T one(T value, int exact) {
    float xi = (float)value;
    if (exact) return (T)(0.5f * xi * erfcf(-xi * M_SQRT1_2));
    float cube = 0.044715f * xi * xi * xi;
    return (T)(0.5f * xi * (1.0f + tanhf(GELU_SCALING_FACTOR * (xi + cube))));
}

template <class T>
__global__ void gelu_forward_kernel2(T* out, const T* inp, long long begin, long long end, int exact) {
    constexpr int size = Packed128<T>::size;
    long long idx = begin + ((long long)blockIdx.x * blockDim.x + threadIdx.x) * size;
    if (idx + size > end) return;
    Packed128<T> packed_inp = load128cs(inp + idx);
    Packed128<T> packed_out;
    for (int k = 0; k < size; ++k) packed_out[k] = one(packed_inp[k], exact);
    store128(out + idx, packed_out);
}

template <class T>
__global__ void gelu_rest(T* out, const T* inp, long long begin, long long end, int exact) {
    long long idx = begin + (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < end) out[idx] = one(inp[idx], exact);
}
