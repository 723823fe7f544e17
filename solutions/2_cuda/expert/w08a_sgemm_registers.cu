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
constexpr int BK = 8;                // steps along k that are in shared memory at a time
constexpr int WARP_TILE = 64;                // rows and columns that a warp computes
constexpr int TM = 16, TN = 8;   // outputs of a thread, in groups of 4 x 4
constexpr int THREADS = TILE / WARP_TILE * (TILE / WARP_TILE) * 32;
constexpr int GROUP_M = 8;                // rows of tiles that neighboring block numbers cover; they share b in L2

template <typename Vector>
__launch_bounds__(THREADS, 2)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    __shared__ alignas(16) float As[2][BK][TILE + 4];  // transposed, so that a thread's rows are neighbors
    __shared__ alignas(16) float Bs[2][BK][TILE];

    const int tiles_m = (m + TILE - 1) / TILE, tiles_n = (n + TILE - 1) / TILE;
    const int first_m = blockIdx.x / (GROUP_M * tiles_n) * GROUP_M, group_m = min(GROUP_M, tiles_m - first_m);
    const int in_group = blockIdx.x % (GROUP_M * tiles_n);
    const int cRow = (first_m + in_group % group_m) * TILE, cCol = in_group / group_m * TILE;

    // Beyond the last row or column, a thread loads the last one again and does not store the results.
    constexpr int LOADS = TILE * BK / WIDTH / THREADS, VECS_A = BK / WIDTH, VECS_B = TILE / WIDTH;
    constexpr int rowStrideA = THREADS / VECS_A, rowStrideB = THREADS / VECS_B;
    const int innerRowA = threadIdx.x / VECS_A, innerColA = threadIdx.x % VECS_A * WIDTH;
    const int innerRowB = threadIdx.x / VECS_B, innerColB = threadIdx.x % VECS_B * WIDTH;
    const float *a_src[LOADS], *b_src = b + (long long)innerRowB * n + min(cCol + innerColB, n - WIDTH);
    for (int l = 0; l < LOADS; ++l) {
        a_src[l] = a + (long long)min(cRow + innerRowA + l * rowStrideA, m - 1) * k + innerColA;
    }
    Vector next_a[LOADS], next_b[LOADS];
    auto fetch = [&](int depth) {
        auto in_k = [&](int i) { return depth == BK || i < depth; };  // known for a complete tile
        for (int l = 0; l < LOADS; ++l) {
            next_a[l] = in_k(innerColA) ? *reinterpret_cast<const Vector*>(a_src[l]) : Vector{};
            a_src[l] += depth;
        }
        for (int l = 0; l < LOADS; ++l) {
            const float* src = b_src + (long long)l * rowStrideB * n;
            next_b[l] = in_k(innerRowB + l * rowStrideB) ? *reinterpret_cast<const Vector*>(src) : Vector{};
        }
        b_src += (long long)depth * n;
    };
    auto store_tiles = [&](int buffer) {
        for (int l = 0; l < LOADS; ++l) {
            for (int e = 0; e < WIDTH; ++e) {
                As[buffer][innerColA + e][innerRowA + l * rowStrideA] = reinterpret_cast<const float*>(&next_a[l])[e];
            }
            *reinterpret_cast<Vector*>(&Bs[buffer][innerRowB + l * rowStrideB][innerColB]) = next_b[l];
        }
    };

    // The lanes form 4 rows of 8 in zigzag. Lanes that read the same 16 bytes of a or b are one or two apart, so shared
    // memory serves 16 lanes at a time. With lanes in plain rows, it would serve only 8 for b.
    const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    const int threadRow = warp_id / (TILE / WARP_TILE) * WARP_TILE + (lane_id / 16 * 2 + lane_id % 2) * 4;
    const int threadCol = warp_id % (TILE / WARP_TILE) * WARP_TILE + lane_id / 2 % 8 * 4;
    alignas(16) float acc[TM][TN] = {};
    const int first_depth = (k - 1) % BK + 1;  // the first step takes the remainder of k, and all others are complete
    fetch(first_depth);
    store_tiles(0);
    __syncthreads();
    for (int done = first_depth, buffer = 0;; done += BK, buffer ^= 1) {
        if (done < k) fetch(BK);
#pragma unroll
        for (int i = 0; i < BK; ++i) {
            alignas(16) float regM[TM], regN[TN];
            for (int r = 0; r < TM; r += 4) {
                *reinterpret_cast<float4*>(regM + r) = *reinterpret_cast<float4*>(&As[buffer][i][threadRow + 4 * r]);
            }
            for (int c = 0; c < TN; c += 4) {
                *reinterpret_cast<float4*>(regN + c) = *reinterpret_cast<float4*>(&Bs[buffer][i][threadCol + 8 * c]);
            }
            for (int r = 0; r < TM; ++r) {
                for (int c = 0; c < TN; ++c) acc[r][c] += regM[r] * regN[c];
            }
        }
        if (done >= k) break;
        store_tiles(buffer ^ 1);
        __syncthreads();
    }

    for (int r = 0; r < TM; ++r) {
        for (int c = 0; c < TN; c += WIDTH) {
            const int y = cRow + threadRow + r / 4 * 16 + r % 4, x = cCol + threadCol + c / 4 * 32 + c % 4;
            if (y < m && x < n) {
                *reinterpret_cast<Vector*>(out + (long long)y * n + x) = *reinterpret_cast<Vector*>(&acc[r][c]);
            }
        }
    }
}
