#include <cuda_bf16.h>

#include <limits>

namespace at {
using BFloat16 = __nv_bfloat16;

namespace native {

template <typename T>
struct Add {
    __device__ T operator()(T a, T b) const { return a + b; }
};

template <typename T>
struct Max {
    __device__ T operator()(T a, T b) const { return a < b ? b : a; }
};

template <typename T, typename AccumT>
struct MaxFloat {
    __device__ AccumT operator()(AccumT max, T v) const { return ::max(max, (AccumT)v); }
};

template <typename T, typename AccumT>
struct SumExpFloat {
    __device__ SumExpFloat(AccumT v) : max_k(v) {}
    __device__ AccumT operator()(AccumT sum, T v) const { return sum + std::exp((AccumT)v - max_k); }
    const AccumT max_k;
};

template <typename T, typename AccumT, typename OutT>
struct SoftMaxForwardEpilogue {
    __device__ SoftMaxForwardEpilogue(AccumT max_input, AccumT sum) : max_input(max_input), sum(sum) {}
    __device__ OutT operator()(T input) const { return static_cast<OutT>(std::exp((AccumT)input - max_input) / sum); }
    const AccumT max_input, sum;
};

template <template <typename> class Reduction, typename AccumT>
__device__ AccumT blockReduce(AccumT* smem, AccumT val, AccumT defaultVal) {
    const Reduction<AccumT> r;
    for (int mask = 16; mask > 0; mask >>= 1) val = r(val, __shfl_xor_sync(0xffffffff, val, mask));
    __syncthreads();  // of the last use of smem
    if (threadIdx.x % 32 == 0) smem[threadIdx.x / 32] = val;
    __syncthreads();
    val = threadIdx.x % 32 < blockDim.x / 32 ? smem[threadIdx.x % 32] : defaultVal;
    for (int mask = 16; mask > 0; mask >>= 1) val = r(val, __shfl_xor_sync(0xffffffff, val, mask));
    return val;
}

template <int ILP, typename scalar_t, typename accscalar_t, typename outscalar_t,
          template <typename, typename, typename> class Epilogue>
__global__ void cunn_SoftMaxForwardSmem(outscalar_t* output, const scalar_t* input, int64_t classes, int64_t cached) {
    extern __shared__ __align__(16) unsigned char smem[];
    __shared__ accscalar_t smem_reduction[32];
    auto smem_input = reinterpret_cast<scalar_t*>(smem);
    input += blockIdx.x * classes;
    output += blockIdx.x * classes;

    constexpr accscalar_t lowest = std::numeric_limits<accscalar_t>::lowest();
    accscalar_t threadMax = lowest;
    const MaxFloat<scalar_t, accscalar_t> maxFunc;
#pragma unroll ILP
    for (int64_t offset = threadIdx.x; offset < classes; offset += blockDim.x) {
        scalar_t v = input[offset];
        if (offset < cached) smem_input[offset] = v;
        threadMax = maxFunc(threadMax, v);
    }
    accscalar_t max_k = blockReduce<Max, accscalar_t>(smem_reduction, threadMax, lowest);

    accscalar_t threadExp = 0;
    const SumExpFloat<scalar_t, accscalar_t> sumExpFunc(max_k);
    for (int64_t offset = threadIdx.x; offset < classes; offset += blockDim.x) {
        threadExp = sumExpFunc(threadExp, offset < cached ? smem_input[offset] : input[offset]);
    }
    accscalar_t sumAll = blockReduce<Add, accscalar_t>(smem_reduction, threadExp, 0);

    const Epilogue<scalar_t, accscalar_t, outscalar_t> epilogue(max_k, sumAll);
    for (int64_t offset = threadIdx.x; offset < classes; offset += blockDim.x) {
        output[offset] = epilogue(offset < cached ? smem_input[offset] : input[offset]);
    }
}

}  // namespace native
}  // namespace at
