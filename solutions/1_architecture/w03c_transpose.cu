// Transpose: out[j, i] = in[i, j] for a matrix of rows x columns elements of type T, contiguous on both sides.
//
// Neighboring threads should read neighboring addresses and write neighboring addresses. A tile in shared memory
// changes one order into the other.
//
// A tile is 64 rows by 256 bytes. A thread moves vectors of WIDTH elements: 16 bytes where the shape allows it, else
// one element. Vector v in tile row r is stored at v ^ (r / WIDTH) (a swizzle), so that both reading and writing the
// tile are free of bank conflicts. Padding would break the 16-byte alignment.

#include <cuda_bf16.h>

constexpr int THREADS = 512, ROWS = 64, ROW_BYTES = 256;

template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Vector {
    T element[WIDTH];
};

template <typename T, int WIDTH>
__launch_bounds__(THREADS)
__global__ void transpose(const T* in, T* out, int rows, int columns) {
    using V = Vector<T, WIDTH>;
    constexpr int COLUMNS = ROW_BYTES / sizeof(T);
    constexpr int ACROSS = COLUMNS / WIDTH;         // vectors in a row of the tile
    constexpr int STEPS = ROWS * ACROSS / THREADS;  // vectors that a thread moves
    constexpr int RUN = WIDTH == 1 ? 32 : 8;        // lanes that write a contiguous segment; 8 x 16 bytes are 128
    __shared__ V tile[ROWS][ACROSS];

    // Blocks go down the rows first, so that blocks that run at the same time write whole rows of out.
    const int tiles_down = (rows + ROWS - 1) / ROWS;
    const int tile_row = blockIdx.x % tiles_down * ROWS;
    const int tile_column = blockIdx.x / tiles_down * COLUMNS;

    V loaded[STEPS];  // all loads are issued before the first store waits for one
    for (int k = 0; k < STEPS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        const int row = tile_row + i / ACROSS, column = tile_column + i % ACROSS * WIDTH;
        if (row < rows && column < columns) {
            loaded[k] = *reinterpret_cast<const V*>(in + (long long)row * columns + column);
        }
    }
    for (int k = 0; k < STEPS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        const int r = i / ACROSS, v = i % ACROSS;
        tile[r][v ^ r / WIDTH % ACROSS] = loaded[k];
    }
    __syncthreads();

    for (int k = 0; k < STEPS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        const int c = i / RUN % COLUMNS;
        const int group = i / RUN / COLUMNS * RUN + i % RUN;  // WIDTH rows of the tile, one vector of out
        V gathered;
        for (int e = 0; e < WIDTH; ++e) {
            gathered.element[e] = tile[group * WIDTH + e][c / WIDTH ^ group % ACROSS].element[c % WIDTH];
        }
        const int row = tile_row + group * WIDTH, column = tile_column + c;
        if (row < rows && column < columns) {
            *reinterpret_cast<V*>(out + (long long)column * rows + row) = gathered;
        }
    }
}
