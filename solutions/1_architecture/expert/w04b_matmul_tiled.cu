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
constexpr int BK = 8;    // steps along k whose elements are in shared memory at a time

template <typename Vector>
__device__ Vector load(const float* matrix, int row, int column, int rows, int columns) {
    if (row >= rows || column >= columns) return {};  // elements outside add nothing to an accumulator
    return *reinterpret_cast<const Vector*>(matrix + (long long)row * columns + column);
}

template <typename Vector>
__launch_bounds__(THREADS, 2)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    constexpr int LOADS = TILE * BK / WIDTH / THREADS;
    constexpr int VECS_A = BK / WIDTH, VECS_B = TILE / WIDTH;  // vectors in a row of the tiles of a and b
    __shared__ alignas(16) float As[BK][TILE + 4];  // transposed, so that a thread's 8 rows are neighbors
    __shared__ alignas(16) float Bs[BK][TILE];

    const int cRow = blockIdx.y * TILE, cCol = blockIdx.x * TILE;
    Vector next_a[LOADS], next_b[LOADS];
    auto fetch = [&](int bkIdx) {
        for (int l = 0; l < LOADS; ++l) {
            const int i = l * THREADS + threadIdx.x;
            next_a[l] = load<Vector>(a, cRow + i / VECS_A, bkIdx + i % VECS_A * WIDTH, m, k);
            next_b[l] = load<Vector>(b, bkIdx + i / VECS_B, cCol + i % VECS_B * WIDTH, k, n);
        }
    };
    auto store_tiles = [&] {
        for (int l = 0; l < LOADS; ++l) {
            const int i = l * THREADS + threadIdx.x;
            for (int e = 0; e < WIDTH; ++e) {
                As[i % VECS_A * WIDTH + e][i / VECS_A] = reinterpret_cast<const float*>(&next_a[l])[e];
            }
            *reinterpret_cast<Vector*>(&Bs[i / VECS_B][i % VECS_B * WIDTH]) = next_b[l];
        }
    };

    // A warp computes 32 x 64 elements. A lane computes 4 x 4 in each quarter of them: 128 contiguous bytes per row.
    const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    const int threadRow = warp_id / 2 * 32 + lane_id / 8 * 4, threadCol = warp_id % 2 * 64 + lane_id % 8 * 4;
    alignas(16) float acc[8][8] = {};
    fetch(0);
    for (int bkIdx = 0; bkIdx < k; bkIdx += BK) {
        store_tiles();
        __syncthreads();
        if (bkIdx + BK < k) fetch(bkIdx + BK);
        #pragma unroll  // 17% faster on an H200
        for (int i = 0; i < BK; ++i) {
            float regM[8], regN[8];
            for (int g = 0; g < 2; ++g) {
                *reinterpret_cast<float4*>(regM + 4 * g) = *reinterpret_cast<float4*>(&As[i][threadRow + 16 * g]);
                *reinterpret_cast<float4*>(regN + 4 * g) = *reinterpret_cast<float4*>(&Bs[i][threadCol + 32 * g]);
            }
            for (int r = 0; r < 8; ++r) {
                for (int c = 0; c < 8; ++c) acc[r][c] += regM[r] * regN[c];
            }
        }
        __syncthreads();  // before any thread overwrites what others still read
    }

    for (int r = 0; r < 8; ++r) {
        for (int c = 0; c < 8; c += WIDTH) {
            const int y = cRow + threadRow + r / 4 * 16 + r % 4, x = cCol + threadCol + c / 4 * 32 + c % 4;
            if (y < m && x < n) {
                *reinterpret_cast<Vector*>(out + (long long)y * n + x) = *reinterpret_cast<Vector*>(&acc[r][c]);
            }
        }
    }
}
