#include <cuda_bf16.h>

namespace at {

using BFloat16 = __nv_bfloat16;

struct Sizes {
    long long size[2], stride[2];
};

template <typename scalar_t>
class Accessor {
public:
    __device__ Accessor(scalar_t* data, const Sizes& sizes) : data_(data), sizes_(sizes) {}
    __device__ bool has(long long row, long long column) const { return row < sizes_.size[0] && column < sizes_.size[1]; }
    __device__ scalar_t& at(long long row, long long column) {
        return data_[row * sizes_.stride[0] + column * sizes_.stride[1]];
    }

private:
    scalar_t* data_;
    const Sizes& sizes_;
};

namespace native {

template <typename scalar_t>
__global__ void transpose_kernel(scalar_t* input, const Sizes input_sizes, scalar_t* output, const Sizes output_sizes) {
    __shared__ scalar_t tile[32][33];
    Accessor<scalar_t> in(input, input_sizes), out(output, output_sizes);
    const auto x = threadIdx.x, y = threadIdx.y;
    const long long top = blockIdx.y * 32ll, left = blockIdx.x * 32ll;
    for (auto j = y; j < 32; j += 8) {
        if (in.has(top + j, left + x)) tile[j][x] = in.at(top + j, left + x);
    }
    __syncthreads();
    for (auto j = y; j < 32; j += 8) {
        if (out.has(left + j, top + x)) out.at(left + j, top + x) = tile[x][j];
    }
}

}  // namespace native
}  // namespace at
