#include <cstdint>

constexpr unsigned kFullMask = 0xFFFFFFFFu;

template <int kWarps>
__global__ void take(const float* table, const std::int64_t* index, float* out, int rows, int columns) {
    for (std::int64_t row = blockIdx.x * kWarps + threadIdx.y; row < rows; row += gridDim.x * kWarps) {
        std::int64_t source = 0;
        if (threadIdx.x == 0) source = index[row];
        source = __shfl_sync(kFullMask, source, 0);
        for (int column = threadIdx.x; column < columns; column += 32) {
            out[row * columns + column] = table[source * columns + column];
        }
    }
}
