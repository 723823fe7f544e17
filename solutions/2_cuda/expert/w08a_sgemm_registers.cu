// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// Each level of the machine has a tile. A block computes 128 x 128 outputs from tiles of a and b in shared memory, a
// warp 64 x 64 of them, and a thread 16 x 8. A thread reads 24 values for 128 multiply-adds, 16 bytes at a time. There
// are two pairs of tiles. While one pair is multiplied, the next tiles are loaded from global memory to registers. They
// are then stored to the other pair, so a step along k takes one barrier.
//
// Vector is the type that a thread loads and stores: float4 if n and k are multiples of 4 and addresses are multiples
// of 16 bytes, else float.

constexpr int TILE = 128;               // rows and columns of out that a block computes
constexpr int DEPTH = 8;                // steps along k that are in shared memory at a time
constexpr int WARP = 64;                // rows and columns that a warp computes
constexpr int ROWS = 16, COLUMNS = 8;   // outputs of a thread, in groups of 4 x 4
constexpr int THREADS = TILE / WARP * (TILE / WARP) * 32;
constexpr int GROUP = 8;                // rows of tiles that neighboring block numbers cover; they share b in L2

template <typename Vector>
__launch_bounds__(THREADS, 2)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    __shared__ alignas(16) float tile_a[2][DEPTH][TILE + 4];  // transposed, so that a thread's rows are neighbors
    __shared__ alignas(16) float tile_b[2][DEPTH][TILE];

    const int down = (m + TILE - 1) / TILE, across = (n + TILE - 1) / TILE;
    const int group = blockIdx.x / (GROUP * across) * GROUP, high = min(GROUP, down - group);
    const int place = blockIdx.x % (GROUP * across);
    const int first_row = (group + place % high) * TILE, first_column = place / high * TILE;

    // Beyond the last row or column, a thread loads the last one again and does not store the results.
    constexpr int LOADS = TILE * DEPTH / WIDTH / THREADS, ACROSS_A = DEPTH / WIDTH, ACROSS_B = TILE / WIDTH;
    constexpr int STEP_A = THREADS / ACROSS_A, STEP_B = THREADS / ACROSS_B;
    const int row_a = threadIdx.x / ACROSS_A, column_a = threadIdx.x % ACROSS_A * WIDTH;
    const int row_b = threadIdx.x / ACROSS_B, column_b = threadIdx.x % ACROSS_B * WIDTH;
    const float *from_a[LOADS], *from_b = b + (long long)row_b * n + min(first_column + column_b, n - WIDTH);
    for (int l = 0; l < LOADS; ++l) {
        from_a[l] = a + (long long)min(first_row + row_a + l * STEP_A, m - 1) * k + column_a;
    }
    Vector next_a[LOADS], next_b[LOADS];
    auto fetch = [&](int depth) {
        auto inside = [&](int i) { return depth == DEPTH || i < depth; };  // known for a complete tile
        for (int l = 0; l < LOADS; ++l) {
            next_a[l] = inside(column_a) ? *reinterpret_cast<const Vector*>(from_a[l]) : Vector{};
            from_a[l] += depth;
        }
        for (int l = 0; l < LOADS; ++l) {
            const float* from = from_b + (long long)l * STEP_B * n;
            next_b[l] = inside(row_b + l * STEP_B) ? *reinterpret_cast<const Vector*>(from) : Vector{};
        }
        from_b += (long long)depth * n;
    };
    auto keep = [&](int half) {
        for (int l = 0; l < LOADS; ++l) {
            for (int e = 0; e < WIDTH; ++e) {
                tile_a[half][column_a + e][row_a + l * STEP_A] = reinterpret_cast<const float*>(&next_a[l])[e];
            }
            *reinterpret_cast<Vector*>(&tile_b[half][row_b + l * STEP_B][column_b]) = next_b[l];
        }
    };

    // The lanes form 4 rows of 8 in zigzag. Lanes that read the same 16 bytes of a or b are one or two apart, so shared
    // memory serves 16 lanes at a time. With lanes in plain rows, it would serve only 8 for b.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / (TILE / WARP) * WARP + (lane / 16 * 2 + lane % 2) * 4;
    const int column = warp % (TILE / WARP) * WARP + lane / 2 % 8 * 4;
    alignas(16) float sum[ROWS][COLUMNS] = {};
    const int rest = (k - 1) % DEPTH + 1;  // the first step takes what is left over, and all others are whole
    fetch(rest);
    keep(0);
    __syncthreads();
    for (int done = rest, half = 0;; done += DEPTH, half ^= 1) {
        if (done < k) fetch(DEPTH);
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            alignas(16) float of_a[ROWS], of_b[COLUMNS];
            for (int r = 0; r < ROWS; r += 4) {
                *reinterpret_cast<float4*>(of_a + r) = *reinterpret_cast<float4*>(&tile_a[half][i][row + 4 * r]);
            }
            for (int c = 0; c < COLUMNS; c += 4) {
                *reinterpret_cast<float4*>(of_b + c) = *reinterpret_cast<float4*>(&tile_b[half][i][column + 8 * c]);
            }
            for (int r = 0; r < ROWS; ++r) {
                for (int c = 0; c < COLUMNS; ++c) sum[r][c] += of_a[r] * of_b[c];
            }
        }
        if (done >= k) break;
        keep(half ^ 1);
        __syncthreads();
    }

    for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < COLUMNS; c += WIDTH) {
            const int y = first_row + row + r / 4 * 16 + r % 4, x = first_column + column + c / 4 * 32 + c % 4;
            if (y < m && x < n) {
                *reinterpret_cast<Vector*>(out + (long long)y * n + x) = *reinterpret_cast<Vector*>(&sum[r][c]);
            }
        }
    }
}
