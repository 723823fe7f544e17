// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// A block computes a tile of out. It moves along k and keeps a tile of a and a tile of b in shared memory, where many
// threads use each element. m, n and k may have any value, so tiles may extend beyond the edges.
//
// A tile of out is TILE x TILE. A thread computes 8 x 8 elements of the tile: in each step along k, it reads 8 values
// of a and 8 of b from shared memory and multiplies each a by each b, 64 multiply-adds for four 16-byte loads.
// Meanwhile the loads for the next tiles are in flight, from global memory to registers.
//
// Vector is the type that a thread reads and writes at a time: float4 where n and k are multiples of 4 and addresses
// are multiples of 16 bytes, else float.

constexpr int THREADS = 256;
constexpr int TILE = 128;   // rows and columns of out per block
constexpr int DEPTH = 8;    // steps along k whose elements are in shared memory at a time

template <typename Vector>
__device__ Vector load(const float* matrix, int row, int column, int rows, int columns) {
    if (row >= rows || column >= columns) return {};  // elements outside add nothing to an accumulator
    return *reinterpret_cast<const Vector*>(matrix + (long long)row * columns + column);
}

template <typename Vector>
__launch_bounds__(THREADS, 2)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    constexpr int LOADS = TILE * DEPTH / WIDTH / THREADS;
    constexpr int ACROSS_A = DEPTH / WIDTH, ACROSS_B = TILE / WIDTH;  // vectors in a row of the tiles of a and b
    __shared__ alignas(16) float tile_a[DEPTH][TILE + 4];  // transposed, so that a thread's 8 rows are neighbors
    __shared__ alignas(16) float tile_b[DEPTH][TILE];

    const int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    Vector next_a[LOADS], next_b[LOADS];
    auto fetch = [&](int depth) {
        for (int l = 0; l < LOADS; ++l) {
            const int i = l * THREADS + threadIdx.x;
            next_a[l] = load<Vector>(a, first_row + i / ACROSS_A, depth + i % ACROSS_A * WIDTH, m, k);
            next_b[l] = load<Vector>(b, depth + i / ACROSS_B, first_column + i % ACROSS_B * WIDTH, k, n);
        }
    };
    auto keep = [&] {
        for (int l = 0; l < LOADS; ++l) {
            const int i = l * THREADS + threadIdx.x;
            for (int e = 0; e < WIDTH; ++e) {
                tile_a[i % ACROSS_A * WIDTH + e][i / ACROSS_A] = reinterpret_cast<const float*>(&next_a[l])[e];
            }
            *reinterpret_cast<Vector*>(&tile_b[i / ACROSS_B][i % ACROSS_B * WIDTH]) = next_b[l];
        }
    };

    // A warp computes 32 x 64 elements. A lane computes 4 x 4 in each quarter of them: 128 contiguous bytes per row.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / 2 * 32 + lane / 8 * 4, column = warp % 2 * 64 + lane % 8 * 4;
    alignas(16) float sum[8][8] = {};
    fetch(0);
    for (int depth = 0; depth < k; depth += DEPTH) {
        keep();
        __syncthreads();
        if (depth + DEPTH < k) fetch(depth + DEPTH);
        #pragma unroll  // 17% faster on an H200
        for (int i = 0; i < DEPTH; ++i) {
            float of_a[8], of_b[8];
            for (int half = 0; half < 2; ++half) {
                *reinterpret_cast<float4*>(of_a + 4 * half) = *reinterpret_cast<float4*>(&tile_a[i][row + 16 * half]);
                *reinterpret_cast<float4*>(of_b + 4 * half) = *reinterpret_cast<float4*>(&tile_b[i][column + 32 * half]);
            }
            for (int r = 0; r < 8; ++r) {
                for (int c = 0; c < 8; ++c) sum[r][c] += of_a[r] * of_b[c];
            }
        }
        __syncthreads();  // before any thread overwrites what others still read
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
