// Convolution: out[i, j] = sum of filter.w[5 * a + b] * x[i + a - 2, j + b - 2] over a and b from 0 to 4, float32.
//
// A block loads a tile of x with a halo of 2 elements on each side into shared memory. The filter is a kernel argument.
// Arguments are in constant memory, where all lanes of a warp read one address with one access.
//
// A thread computes ROWS outputs in a column. For each column of the filter, it reads ROWS + 4 values into registers
// and uses each of them for up to 5 outputs.

constexpr int RADIUS = 2, SIDE = 2 * RADIUS + 1;
constexpr int TILE_X = 32, TILE_Y = 32;  // outputs per block
constexpr int THREADS_Y = 8;             // a block has 32 x 8 threads
constexpr int ROWS = TILE_Y / THREADS_Y;

struct Filter {
    float w[SIDE * SIDE];
};

__global__ void conv2d(const float* x, float* out, long long height, long long width, Filter filter) {
    __shared__ float tile[TILE_Y + 2 * RADIUS][TILE_X + 2 * RADIUS];
    const long long tiles_x = (width + TILE_X - 1) / TILE_X;  // tiles per row of tiles
    const long long row0 = blockIdx.x / tiles_x * TILE_Y, column0 = blockIdx.x % tiles_x * TILE_X;

    for (int r = threadIdx.y; r < TILE_Y + 2 * RADIUS; r += THREADS_Y) {
        for (int c = threadIdx.x; c < TILE_X + 2 * RADIUS; c += TILE_X) {
            const long long row = row0 + r - RADIUS, column = column0 + c - RADIUS;
            const bool in_bounds = row >= 0 && row < height && column >= 0 && column < width;
            tile[r][c] = in_bounds ? x[row * width + column] : 0.0f;
        }
    }
    __syncthreads();

    float sum[ROWS] = {};
    const int first = threadIdx.y * ROWS;
    for (int b = 0; b < SIDE; ++b) {
        float window[ROWS + 2 * RADIUS];
        for (int r = 0; r < ROWS + 2 * RADIUS; ++r) window[r] = tile[first + r][threadIdx.x + b];
        for (int a = 0; a < SIDE; ++a) {
            for (int r = 0; r < ROWS; ++r) sum[r] += filter.w[SIDE * a + b] * window[r + a];
        }
    }

    const long long column = column0 + threadIdx.x;
    for (int r = 0; r < ROWS; ++r) {
        const long long row = row0 + first + r;
        if (row < height && column < width) out[row * width + column] = sum[r];
    }
}
