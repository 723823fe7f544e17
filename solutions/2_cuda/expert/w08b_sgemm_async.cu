// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// A block computes BM x BN outputs, a warp WM x WN of them, and a thread TM x TN. cp.async
// copies the tiles of a and b, BK steps along k, to shared memory, in a circular buffer of STAGES. No register waits
// for memory, and a tile takes one barrier. While the values of one step along k are multiplied, the next step's values
// are read into registers, even across the barrier.
//
// Blocks with the same blockIdx.x share a tile of out. Each computes `steps` tiles of k and stores its part; add_parts
// adds the parts in order, so equal inputs give the same bits. Rows of a are pitch_a floats apart, rows of b pitch_b.

#include <cuda_pipeline.h>

constexpr int GROUP_M = 8;  // rows of tiles that neighboring block numbers cover; they share b in L2

// Vector is the type of a copy from b: float4 if its rows start at multiples of 16 bytes, else float. a is transposed
// on the way, 4 bytes at a time, at any alignment. The copies start in step COPY of a tile's BK steps.
template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int BLOCKS,
          int COPY, typename Vector>
__launch_bounds__(BM / WM * (BN / WN) * 32, BLOCKS)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k, int pitch_a, int pitch_b,
                       int steps, float one) {
    constexpr int THREADS = BM / WM * (BN / WN) * 32, WIDTH = sizeof(Vector) / sizeof(float);
    struct Stage {
        float a[BK][BM + 4], b[BK][BN];  // a transposed; 4 floats more, against bank conflicts
    };
    extern __shared__ float4 shared[];
    Stage* const stages = reinterpret_cast<Stage*>(shared);

    const int tiles_m = (m + BM - 1) / BM, tiles_n = (n + BN - 1) / BN;
    const int first_m = blockIdx.x / (GROUP_M * tiles_n) * GROUP_M, group_m = min(GROUP_M, tiles_m - first_m);
    const int in_group = blockIdx.x % (GROUP_M * tiles_n);
    const int cRow = (first_m + in_group % group_m) * BM, cCol = in_group / group_m * BN;

    // The first tile takes the remainder of k, and all others are complete.
    const int k_begin = blockIdx.y * steps * BK, k_length = min(k - k_begin, steps * BK);
    const int k_tiles = (k_length + BK - 1) / BK, first_depth = (k_length - 1) % BK + 1;

    // A request copies 8 floats, one sector, from each of 4 rows of a. Beyond the last row or column, the last one is
    // copied again, and the results are not stored.
    constexpr int rowStrideA = THREADS / 8, LOADS_A = BM / rowStrideA;
    constexpr int VECS_B = BN / WIDTH, rowStrideB = THREADS / VECS_B, LOADS_B = BK / rowStrideB;
    static_assert(LOADS_A * rowStrideA == BM && LOADS_B * rowStrideB == BK && BK % 8 == 0);
    const int innerColA = threadIdx.x % 8, innerRowA = threadIdx.x / 8;
    const int innerColB = threadIdx.x % VECS_B * WIDTH, innerRowB = threadIdx.x / VECS_B;
    const float *a_src[LOADS_A], *b_src = b + (long long)(k_begin + innerRowB) * pitch_b + min(cCol + innerColB, pitch_b - WIDTH);
    for (int l = 0; l < LOADS_A; ++l) {
        a_src[l] = a + (long long)min(cRow + innerRowA + l * rowStrideA, m - 1) * pitch_a + k_begin + innerColA;
    }
    auto copy = [&](Stage& to, int depth) {
        auto zeros = [&](int i) { return depth == BK || i < depth ? 0 : 1; };  // known for a complete tile
        for (int l = 0; l < LOADS_A; ++l) {
            for (int c = innerColA; c < BK + innerColA; c += 8) {
                float* dst = &to.a[c][innerRowA + l * rowStrideA];
                __pipeline_memcpy_async(dst, a_src[l] + c - innerColA, 4, 4 * zeros(c));
            }
            a_src[l] += depth;
        }
        for (int l = 0; l < LOADS_B; ++l) {
            const int r = innerRowB + l * rowStrideB;
            const float* src = b_src + (long long)l * rowStrideB * pitch_b;
            __pipeline_memcpy_async(&to.b[r][innerColB], src, sizeof(Vector), sizeof(Vector) * zeros(r));
        }
        b_src += (long long)depth * pitch_b;
    };

    // The lanes form a zigzag, so that lanes that read the same 16 bytes of a or b are one or two apart.
    constexpr int LANES_M = WM / TM, LANES_N = WN / TN;
    static_assert(LANES_M * LANES_N == 32 && (LANES_M == 4 || LANES_M == 8));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pos4 = lane / 16 * 2 + lane % 2, pos8 = lane / 2 % 8;
    const int threadRow = warp / (BN / WN) * WM + (LANES_M == 4 ? pos4 : pos8) * 4;
    const int threadCol = warp % (BN / WN) * WN + (LANES_M == 4 ? pos8 : pos4) * 4;
    alignas(16) float regM[2][TM], regN[2][TN], acc[TM][TN] = {};
    auto read = [&](const Stage& stage, int i) {
        for (int r = 0; r < TM; r += 4) {
            const float* four = &stage.a[i][threadRow + r * LANES_M];
            *reinterpret_cast<float4*>(&regM[i % 2][r]) = *reinterpret_cast<const float4*>(four);
        }
        for (int c = 0; c < TN; c += 4) {
            const float* four = &stage.b[i][threadCol + c * LANES_N];
            *reinterpret_cast<float4*>(&regN[i % 2][c]) = *reinterpret_cast<const float4*>(four);
        }
    };

    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < k_tiles) copy(stages[s], s == 0 ? first_depth : BK);
        __pipeline_commit();
    }
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    read(stages[0], 0);
    int current = 0, free = STAGES - 1;  // the current stage and the previous one
    for (int tiles_left = k_tiles; tiles_left > 0; --tiles_left) {
#pragma unroll
        for (int i = 0; i < BK; ++i) {
            if (i == BK - 1) {
                __pipeline_wait_prior(STAGES - 2);
                __syncthreads();  // the next stage has arrived for all threads, and all have read this one
                free = current;
                if (tiles_left > 1) current = current + 1 == STAGES ? 0 : current + 1;
            }
            read(stages[current], (i + 1) % BK);
            if (i == COPY) {
                if (tiles_left >= STAGES) copy(stages[free], BK);
                __pipeline_commit();
            }
            for (int r = 0; r < TM; ++r) {
                for (int j = 0; j < TN; ++j) {
                    const int c = r % 2 ? TN - 1 - j : j;  // back and forth, so that neighbors share an operand
                    acc[r][c] += regM[i % 2][r] * regN[i % 2][c];
                }
            }
        }
    }

    // Multiply by `one`, which the compiler does not know to be 1. Then the accumulators need not be in four adjacent
    // registers all along, as a 16-byte store requires, and ptxas assigns them without bank conflicts.
    out += (long long)blockIdx.y * m * n;
    for (int r = 0; r < TM; ++r) {
        const int y = cRow + threadRow + r / 4 * LANES_M * 4 + r % 4;
        for (int c = 0; c < TN; c += 4) {
            const int x = cCol + threadCol + c * LANES_N;
            float four[4];
            for (int e = 0; e < 4; ++e) four[e] = acc[r][c + e] * one;
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
__global__ void pad(const float* src, float* dst, int rows, int columns, int pitch) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= pitch) return;
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        dst[row * pitch + column] = column < columns ? src[row * columns + column] : 0;
    }
}

// Set out to the sum of `count` matrices of `size` elements, stored one after another.
__global__ void add_parts(const float* parts, float* out, long long size, int count) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    float acc = parts[i];
    for (int part = 1; part < count; ++part) acc += parts[part * size + i];
    out[i] = acc;
}
