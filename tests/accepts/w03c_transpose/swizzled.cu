#include <cuda/std/cstdint>

template <int kBits>
struct Swizzle {
    static constexpr int kSize = 1 << kBits;
    __device__ static constexpr int at(int row, int column) { return row * kSize + (column ^ (row % kSize)); }
};

template <typename Bits>
__global__ void transpose(Bits const* in, Bits* out, int rows, int columns) {
    using Layout = Swizzle<5>;
    __shared__ Bits tile[Layout::kSize * Layout::kSize];
    int const lane = threadIdx.x % 32, warp = threadIdx.x / 32, across = (columns + 31) / 32;
    int const left = blockIdx.x % across * 32, top = blockIdx.x / across * 32;
    for (int r = warp; r < 32; r += 8) {
        if (top + r < rows && left + lane < columns) {
            tile[Layout::at(r, lane)] = in[int64_t(top + r) * columns + left + lane];
        }
    }
    __syncthreads();
    for (int r = warp; r < 32; r += 8) {
        if (left + r < columns && top + lane < rows) {
            out[int64_t(left + r) * rows + top + lane] = tile[Layout::at(lane, r)];
        }
    }
}
