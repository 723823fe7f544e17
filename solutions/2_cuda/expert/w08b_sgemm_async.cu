// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// A block computes ROWS x COLUMNS outputs, a warp WARP_ROWS x WARP_COLUMNS of them, and a thread HIGH x WIDE. cp.async
// copies the tiles of a and b, DEPTH steps along k, to shared memory, in a circular buffer of STAGES. No register waits
// for memory, and a tile takes one barrier. While the values of one step along k are multiplied, the next step's values
// are read into registers, even across the barrier.
//
// Blocks with the same blockIdx.x share a tile of out. Each computes `steps` tiles of k and stores its part; add_parts
// adds the parts in order, so equal inputs give the same bits. Rows of a are pitch_a floats apart, rows of b pitch_b.

#include <cuda_pipeline.h>

constexpr int GROUP = 8;  // rows of tiles that neighboring block numbers cover; they share b in L2

// Vector is the type of a copy from b: float4 if its rows start at multiples of 16 bytes, else float. a is transposed
// on the way, 4 bytes at a time, at any alignment. The copies start in step COPY of a tile's DEPTH steps.
template <int ROWS, int COLUMNS, int DEPTH, int WARP_ROWS, int WARP_COLUMNS, int HIGH, int WIDE, int STAGES, int BLOCKS,
          int COPY, typename Vector>
__launch_bounds__(ROWS / WARP_ROWS * (COLUMNS / WARP_COLUMNS) * 32, BLOCKS)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k, int pitch_a, int pitch_b,
                       int steps, float one) {
    constexpr int THREADS = ROWS / WARP_ROWS * (COLUMNS / WARP_COLUMNS) * 32, WIDTH = sizeof(Vector) / sizeof(float);
    struct Stage {
        float a[DEPTH][ROWS + 4], b[DEPTH][COLUMNS];  // a transposed; 4 floats more, against bank conflicts
    };
    extern __shared__ float4 shared[];
    Stage* const ring = reinterpret_cast<Stage*>(shared);

    const int down = (m + ROWS - 1) / ROWS, across = (n + COLUMNS - 1) / COLUMNS;
    const int group = blockIdx.x / (GROUP * across) * GROUP, high = min(GROUP, down - group);
    const int place = blockIdx.x % (GROUP * across);
    const int first_row = (group + place % high) * ROWS, first_column = place / high * COLUMNS;

    // The first tile takes the remainder of k, and all others are complete.
    const int begin = blockIdx.y * steps * DEPTH, length = min(k - begin, steps * DEPTH);
    const int tiles = (length + DEPTH - 1) / DEPTH, rest = (length - 1) % DEPTH + 1;

    // A request copies 8 floats, one sector, from each of 4 rows of a. Beyond the last row or column, the last one is
    // copied again, and the results are not stored.
    constexpr int STEP_A = THREADS / 8, LOADS_A = ROWS / STEP_A;
    constexpr int ACROSS_B = COLUMNS / WIDTH, STEP_B = THREADS / ACROSS_B, LOADS_B = DEPTH / STEP_B;
    static_assert(LOADS_A * STEP_A == ROWS && LOADS_B * STEP_B == DEPTH && DEPTH % 8 == 0);
    const int column_a = threadIdx.x % 8, row_a = threadIdx.x / 8;
    const int column_b = threadIdx.x % ACROSS_B * WIDTH, row_b = threadIdx.x / ACROSS_B;
    const float *from_a[LOADS_A], *from_b = b + (long long)(begin + row_b) * pitch_b + min(first_column + column_b, pitch_b - WIDTH);
    for (int l = 0; l < LOADS_A; ++l) {
        from_a[l] = a + (long long)min(first_row + row_a + l * STEP_A, m - 1) * pitch_a + begin + column_a;
    }
    auto copy = [&](Stage& to, int depth) {
        auto zeros = [&](int i) { return depth == DEPTH || i < depth ? 0 : 1; };  // known for a complete tile
        for (int l = 0; l < LOADS_A; ++l) {
            for (int c = column_a; c < DEPTH + column_a; c += 8) {
                float* there = &to.a[c][row_a + l * STEP_A];
                __pipeline_memcpy_async(there, from_a[l] + c - column_a, 4, 4 * zeros(c));
            }
            from_a[l] += depth;
        }
        for (int l = 0; l < LOADS_B; ++l) {
            const int r = row_b + l * STEP_B;
            const float* from = from_b + (long long)l * STEP_B * pitch_b;
            __pipeline_memcpy_async(&to.b[r][column_b], from, sizeof(Vector), sizeof(Vector) * zeros(r));
        }
        from_b += (long long)depth * pitch_b;
    };

    // The lanes form a zigzag, so that lanes that read the same 16 bytes of a or b are one or two apart.
    constexpr int LANES_DOWN = WARP_ROWS / HIGH, LANES_ACROSS = WARP_COLUMNS / WIDE;
    static_assert(LANES_DOWN * LANES_ACROSS == 32 && (LANES_DOWN == 4 || LANES_DOWN == 8));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, of_4 = lane / 16 * 2 + lane % 2, of_8 = lane / 2 % 8;
    const int row = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS + (LANES_DOWN == 4 ? of_4 : of_8) * 4;
    const int column = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + (LANES_DOWN == 4 ? of_8 : of_4) * 4;
    alignas(16) float of_a[2][HIGH], of_b[2][WIDE], sum[HIGH][WIDE] = {};
    auto read = [&](const Stage& stage, int i) {
        for (int r = 0; r < HIGH; r += 4) {
            const float* four = &stage.a[i][row + r * LANES_DOWN];
            *reinterpret_cast<float4*>(&of_a[i % 2][r]) = *reinterpret_cast<const float4*>(four);
        }
        for (int c = 0; c < WIDE; c += 4) {
            const float* four = &stage.b[i][column + c * LANES_ACROSS];
            *reinterpret_cast<float4*>(&of_b[i % 2][c]) = *reinterpret_cast<const float4*>(four);
        }
    };

    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < tiles) copy(ring[s], s == 0 ? rest : DEPTH);
        __pipeline_commit();
    }
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    read(ring[0], 0);
    int now = 0, free = STAGES - 1;  // the stage that is multiplied, and the stage multiplied before
    for (int left = tiles; left > 0; --left) {
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            if (i == DEPTH - 1) {
                __pipeline_wait_prior(STAGES - 2);
                __syncthreads();  // the next stage is there for all threads, and all have read this one
                free = now;
                if (left > 1) now = now + 1 == STAGES ? 0 : now + 1;
            }
            read(ring[now], (i + 1) % DEPTH);
            if (i == COPY) {
                if (left >= STAGES) copy(ring[free], DEPTH);
                __pipeline_commit();
            }
            for (int r = 0; r < HIGH; ++r) {
                for (int j = 0; j < WIDE; ++j) {
                    const int c = r % 2 ? WIDE - 1 - j : j;  // back and forth, so that neighbors share an operand
                    sum[r][c] += of_a[i % 2][r] * of_b[i % 2][c];
                }
            }
        }
    }

    // Multiply by `one`, which the compiler does not know to be 1. Then the accumulators need not be in four adjacent
    // registers all along, as a 16-byte store requires, and ptxas assigns them without bank conflicts.
    out += (long long)blockIdx.y * m * n;
    for (int r = 0; r < HIGH; ++r) {
        const int y = first_row + row + r / 4 * LANES_DOWN * 4 + r % 4;
        for (int c = 0; c < WIDE; c += 4) {
            const int x = first_column + column + c * LANES_ACROSS;
            float four[4];
            for (int e = 0; e < 4; ++e) four[e] = sum[r][c + e] * one;
            float* to = out + (long long)y * n + x;
            if (n % 4 == 0 && y < m && x < n) {
                *reinterpret_cast<float4*>(to) = make_float4(four[0], four[1], four[2], four[3]);
            } else if (y < m) {
                for (int e = 0; e < 4; ++e) {
                    if (x + e < n) to[e] = four[e];
                }
            }
        }
    }
}

// Copy a matrix with `columns` columns to rows of `pitch` floats, padded with 0.
__global__ void pad(const float* from, float* to, int rows, int columns, int pitch) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= pitch) return;
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        to[row * pitch + column] = column < columns ? from[row * columns + column] : 0;
    }
}

// Set out to the sum of `count` matrices of `size` elements, stored one after another.
__global__ void add_parts(const float* parts, float* out, long long size, int count) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    float sum = parts[i];
    for (int part = 1; part < count; ++part) sum += parts[part * size + i];
    out[i] = sum;
}
