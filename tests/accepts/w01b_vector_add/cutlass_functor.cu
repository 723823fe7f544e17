template <typename T, int N>
struct alignas(sizeof(T) * N) AlignedArray {
    T storage[N];
    __device__ T& operator[](int i) { return storage[i]; }
    __device__ T const& operator[](int i) const { return storage[i]; }
};

template <typename T, int N>
__device__ AlignedArray<T, N> operator+(AlignedArray<T, N> const& lhs, AlignedArray<T, N> const& rhs) {
    AlignedArray<T, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = lhs[i] + rhs[i];
    return result;
}

namespace kernel {

template <typename Element_, int kAlignment>
struct VectorAdd {
    using Element = Element_;
    using Fragment = AlignedArray<Element, kAlignment>;
    struct Params {
        Element const* ptr_a;
        Element const* ptr_b;
        Element* ptr_d;
        long long extent;
    };

    __device__ void operator()(Params const& params) const {
        const long long offset = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * kAlignment;
        if (offset + kAlignment <= params.extent) {
            Fragment const a = *reinterpret_cast<Fragment const*>(params.ptr_a + offset);
            Fragment const b = *reinterpret_cast<Fragment const*>(params.ptr_b + offset);
            *reinterpret_cast<Fragment*>(params.ptr_d + offset) = a + b;
        } else {
            for (auto i = offset; i < params.extent; ++i) params.ptr_d[i] = params.ptr_a[i] + params.ptr_b[i];
        }
    }
};

}  // namespace kernel

template <typename Operator>
__global__ void device_kernel(typename Operator::Element const* a, typename Operator::Element const* b,
                              typename Operator::Element* d, long long extent) {
    Operator op;
    op({a, b, d, extent});
}
