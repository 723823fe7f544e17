// out[j, i] = in[i, j]: a tile at a time through shared memory, so that both sides move whole rows of a tile.
//
// Vector is what one thread moves at a time: WIDTH elements of type T, 16 bytes where the shape allows, else one
// element. A tile is TILE x TILE elements.

#include <cuda_bf16.h>

template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Vector {
    T element[WIDTH];
};

template <typename T, int WIDTH, int TILE, int THREADS>
__global__ void __launch_bounds__(THREADS)
    transpose(const T* __restrict__ in, T* __restrict__ out, int rows, int columns) {
    using V = Vector<T, WIDTH>;
    constexpr int ACROSS = TILE / WIDTH;           // vectors in a row of the tile
    constexpr int STEPS = TILE * ACROSS / THREADS;  // vectors a thread moves
    constexpr int RUN = WIDTH == 1 ? 32 : 8;        // lanes that write side by side: 128 bytes
    __shared__ V tile[TILE][ACROSS];

    const int tiles_across = (columns + TILE - 1) / TILE;
    const int tile_row = blockIdx.x / tiles_across * TILE;
    const int tile_column = blockIdx.x % tiles_across * TILE;

    V loaded[STEPS];
    for (int k = 0; k < STEPS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        const int row = tile_row + i / ACROSS, column = tile_column + i % ACROSS * WIDTH;
        if (row < rows && column < columns) {
            loaded[k] = *reinterpret_cast<const V*>(in + (long long)row * columns + column);
        }
    }
    for (int k = 0; k < STEPS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        const int row = i / ACROSS;
        tile[row][i % ACROSS ^ row / WIDTH % ACROSS] = loaded[k];
    }
    __syncthreads();

    for (int k = 0; k < STEPS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        const int column = i / RUN % TILE;
        const int group = i / RUN / TILE * RUN + i % RUN;  // WIDTH rows of the tile become one vector of out
        V gathered;
        for (int e = 0; e < WIDTH; ++e) {
            gathered.element[e] = tile[group * WIDTH + e][column / WIDTH ^ group].element[column % WIDTH];
        }
        const int row = tile_row + group * WIDTH;
        if (row < rows && tile_column + column < columns) {
            *reinterpret_cast<V*>(out + (long long)(tile_column + column) * rows + row) = gathered;
        }
    }
}
