// Matrix product: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// A tile for each level of the machine. A block makes 128 x 128 elements of out from tiles of a and b in shared memory;
// a warp makes 32 x 64 of them, and a thread 8 x 8, from 16 values in registers. Of both tiles there are two: while one
// pair is multiplied, the next one is on its way from global memory to registers, and then goes to the other pair.
// So a step along k needs one barrier.
//
// Vector is what a thread loads and stores at a time: float4 where n and k are multiples of 4 and addresses of 16
// bytes, else float.

constexpr int TILE = 128;              // rows and columns of out that a block makes
constexpr int DEPTH = 8;               // steps along k that are in shared memory at a time
constexpr int WARP_M = 32, WARP_N = 64;  // rows and columns that a warp makes
constexpr int THREADS = TILE / WARP_M * (TILE / WARP_N) * 32;
constexpr int GROUP = 8;               // rows of tiles that neighboring blocks work on, so that they share b in L2

template <typename Vector>
__launch_bounds__(THREADS, 2)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    __shared__ alignas(16) float tile_a[2][DEPTH][TILE + 4];  // transposed, so that a thread's rows are neighbors
    __shared__ alignas(16) float tile_b[2][DEPTH][TILE];

    const int down = (m + TILE - 1) / TILE, across = (n + TILE - 1) / TILE;
    const int group = blockIdx.x / (GROUP * across) * GROUP, high = min(GROUP, down - group);
    const int first_row = (group + blockIdx.x % (GROUP * across) % high) * TILE;
    const int first_column = blockIdx.x % (GROUP * across) / high * TILE;

    // A thread loads LOADS vectors of either tile. Rows and columns beyond the edge are read as the last ones, because
    // what is made of them is not stored.
    constexpr int LOADS = TILE * DEPTH / WIDTH / THREADS, ACROSS_A = DEPTH / WIDTH, ACROSS_B = TILE / WIDTH;
    constexpr int ROWS_A = THREADS / ACROSS_A, ROWS_B = THREADS / ACROSS_B;
    const int row_a = threadIdx.x / ACROSS_A, column_a = threadIdx.x % ACROSS_A * WIDTH;
    const int row_b = threadIdx.x / ACROSS_B, column_b = threadIdx.x % ACROSS_B * WIDTH;
    Vector next_a[LOADS], next_b[LOADS];
    auto fetch = [&](int depth) {
        for (int l = 0; l < LOADS; ++l) {
            const int row = min(first_row + row_a + l * ROWS_A, m - 1), column = depth + column_a;
            next_a[l] = column < k ? *reinterpret_cast<const Vector*>(a + (long long)row * k + column) : Vector{};
        }
        for (int l = 0; l < LOADS; ++l) {
            const int row = depth + row_b + l * ROWS_B, column = min(first_column + column_b, n - WIDTH);
            next_b[l] = row < k ? *reinterpret_cast<const Vector*>(b + (long long)row * n + column) : Vector{};
        }
    };
    auto keep = [&](int half) {
        for (int l = 0; l < LOADS; ++l) {
            for (int e = 0; e < WIDTH; ++e) {
                tile_a[half][column_a + e][row_a + l * ROWS_A] = reinterpret_cast<const float*>(&next_a[l])[e];
            }
            *reinterpret_cast<Vector*>(&tile_b[half][row_b + l * ROWS_B][column_b]) = next_b[l];
        }
    };

    // The lanes of a warp stand in 4 rows of 8, two rows zigzag: lanes that read the same 16 bytes, of a or of b, are
    // one or two apart. Shared memory then serves 16 lanes at a time, and else 8.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / (TILE / WARP_N) * WARP_M + (lane / 16 * 2 + lane % 2) * 4;
    const int column = warp % (TILE / WARP_N) * WARP_N + lane / 2 % 8 * 4;
    alignas(16) float sum[8][8] = {};
    fetch(0);
    keep(0);
    __syncthreads();
    for (int depth = 0, half = 0; depth < k; depth += DEPTH, half ^= 1) {
        if (depth + DEPTH < k) fetch(depth + DEPTH);
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            float of_a[8], of_b[8];
            for (int four = 0; four < 2; ++four) {
                *reinterpret_cast<float4*>(of_a + 4 * four) = *reinterpret_cast<float4*>(&tile_a[half][i][row + 16 * four]);
                *reinterpret_cast<float4*>(of_b + 4 * four) = *reinterpret_cast<float4*>(&tile_b[half][i][column + 32 * four]);
            }
            for (int r = 0; r < 8; ++r) {
                for (int c = 0; c < 8; ++c) sum[r][c] += of_a[r] * of_b[c];
            }
        }
        if (depth + DEPTH < k) keep(half ^ 1);
        __syncthreads();
    }

    for (int r = 0; r < 8; ++r) {
        for (int c = 0; c < 8; c += WIDTH) {
            const int y = first_row + row + r / 4 * 16 + r % 4, x = first_column + column + c / 4 * 32 + c % 4;
            if (y < m && x < n) {
                *reinterpret_cast<Vector*>(out + (long long)y * n + x) = *reinterpret_cast<Vector*>(&sum[r][c]);
            }
        }
    }
}
