#include <cstddef>

template <typename index_t>
struct OffsetCalculator {
    index_t columns;
    size_t stride;
    __device__ size_t operator()(index_t linear) const { return linear / columns * stride + linear % columns; }
};

template <typename index_t>
__global__ void add_flat(const float* x, const float* y, float* out, index_t numel, index_t columns, size_t x_stride,
                         size_t y_stride) {
    const OffsetCalculator<index_t> of_x{columns, x_stride}, of_y{columns, y_stride};
    const index_t i = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < numel) out[i] = x[of_x(i)] + y[of_y(i)];
}
