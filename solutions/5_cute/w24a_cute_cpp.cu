// GEMM on tensor cores in C++, with CuTe: out[row, column] = sum over i of a[row, i] * b[i, column]. a (m x k) and
// out (m x n) are row-major, b (k x n) is column-major. All are bfloat16, the accumulators float32. n and k are multiples of 8.
//
// Atoms name instructions (cp.async, ldmatrix, mma.sync), their traits say which thread holds which value, and layouts say
// where a value is stored. All of them are types, so the compiler computes everything that m, n, k and the thread don't affect.

#include <cute/tensor.hpp>

using namespace cute;

using Copy = SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>;  // 16 bytes, zeros where the predicate is false
using Ldmatrix = SM75_U32x4_LDSM_N;                       // four 8 x 8 matrices
using Mma = SM80_16x8x16_F32BF16BF16F32_TN;               // accumulators (16 x 8) += a (16 x 16) * b (16 x 8)

constexpr int STAGES = 3, GROUP_M = 8;  // GROUP_M: rows of tiles per group, whose blocks share a and b in L2
using Depth = _64;                    // columns of a stage: rows of 128 bytes, which span all banks
using Vector = _8;                    // elements in 16 bytes

// Rows of 64 elements. Vector v of row r is stored at v ^ r % 8, so the same vector of adjacent rows is in different banks.
// Fragments that are 16 elements apart differ in one bit of the offset: offset(row, i ^ 16) = offset(row, i) ^ 16.
template <class Shape>
using Swizzled = decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape, decltype(compact_row_major(Shape{}))>{}));

// lane -> (row, first element) of its vector for ldmatrix. Registers 0 and 1 of b hold 8 columns, 2 and 3 the next 8.
using RowsOfA = Layout<Shape<_16, _2>, Stride<_1, _0>>;
using RowsOfB = Layout<Shape<_8, _2, _2>, Stride<_1, _0, _8>>;
using DepthOfA = Layout<Shape<_16, _2>, Stride<_0, Vector>>;
using DepthOfB = Layout<Shape<_8, _2, _2>, Stride<_0, Vector, _0>>;

__device__ uint128_t& vector_at(bfloat16_t& first) { return reinterpret_cast<uint128_t&>(first); }
__device__ const uint128_t& vector_at(const bfloat16_t& first) { return reinterpret_cast<const uint128_t&>(first); }

template <int ROWS, int COLUMNS, int WARP_ROWS, int WARP_COLUMNS>  // the tile of out per block, and per warp
__global__ void __launch_bounds__(ROWS / WARP_ROWS * (COLUMNS / WARP_COLUMNS) * 32)
matmul(const bfloat16_t* a, const bfloat16_t* b, bfloat16_t* out, int m, int n, int k) {
    constexpr int WARPS_N = COLUMNS / WARP_COLUMNS, THREADS = ROWS / WARP_ROWS * WARPS_N * 32;
    constexpr int I = WARP_ROWS / 16, J = WARP_COLUMNS / 8, PARTS = Depth::value / 16;

    const auto mA = make_tensor(make_gmem_ptr(a), make_layout(make_shape(m, k), make_stride(int64_t(k), _1{})));
    const auto mB = make_tensor(make_gmem_ptr(b), make_layout(make_shape(n, k), make_stride(int64_t(k), _1{})));
    const auto mC = make_tensor(make_gmem_ptr(out), make_layout(make_shape(m, n), make_stride(int64_t(n), _1{})));

    // A ring of stages, each with ROWS rows of a and then COLUMNS columns of b.
    extern __shared__ __align__(128) unsigned char shared[];
    bfloat16_t* const ring = reinterpret_cast<bfloat16_t*>(shared);
    constexpr auto stage_layout = Swizzled<Shape<Int<ROWS + COLUMNS>, Depth>>{};
    constexpr int STAGE = cosize_v<decltype(stage_layout)>;

    // Blocks go down GROUP_M rows of tiles before the next column of tiles.
    const int tiles_m = ceil_div(m, ROWS), tiles_n = ceil_div(n, COLUMNS);
    const int group = blockIdx.x / (GROUP_M * tiles_n), in_group = blockIdx.x % (GROUP_M * tiles_n);
    const int group_m = min(GROUP_M, tiles_m - group * GROUP_M);
    const int first_row = (group * GROUP_M + in_group % group_m) * ROWS, first_column = in_group / group_m * COLUMNS;

    // A thread copies one vector from every LINES-th row of a, and likewise from b.
    constexpr int LINES = THREADS / 8;
    const int line = threadIdx.x / 8, k_offset = threadIdx.x % 8 * Vector::value;
    const auto below = make_stride(LINES * int64_t(k));
    auto gA = make_tensor(&mA(first_row + line, k_offset), make_layout(Shape<Int<ROWS / LINES>>{}, below));
    auto gB = make_tensor(&mB(first_column + line, k_offset), make_layout(Shape<Int<COLUMNS / LINES>>{}, below));
    const int to = stage_layout(line, k_offset);
    int i = k_offset, filled = 0;  // the thread's position along k, and the next stage to fill
    const auto fetch = [&] {    // past the end of k, a stage is filled with zeros
        bfloat16_t* const stage = ring + filled * STAGE + to;
        CUTE_UNROLL
        for (int y = 0; y < size(gA); ++y) {
            Copy::copy(vector_at(gA(y)), vector_at(stage[y * LINES * Depth::value]), first_row + line + y * LINES < m && i < k);
        }
        CUTE_UNROLL
        for (int x = 0; x < size(gB); ++x) {
            bfloat16_t& slot = stage[(ROWS + x * LINES) * Depth::value];
            Copy::copy(vector_at(gB(x)), vector_at(slot), first_column + line + x * LINES < n && i < k);
        }
        cp_async_fence();
        i += Depth::value;
        gA.data() = gA.data() + Depth::value;
        gB.data() = gB.data() + Depth::value;
        filled = filled == STAGES - 1 ? 0 : filled + 1;
    };

    // Two sets of fragments: the current and the next.
    const int lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32;
    const int warp_row = warp_id / WARPS_N * WARP_ROWS, warp_column = warp_id % WARPS_N * WARP_COLUMNS;
    const int a_offset = stage_layout(warp_row + RowsOfA{}(lane_id), DepthOfA{}(lane_id));
    const int b_offset = stage_layout(ROWS + warp_column + RowsOfB{}(lane_id), DepthOfB{}(lane_id));
    uint32_t tCrA[2][I][4], tCrB[2][J / 2][4];
    const bfloat16_t* stage = ring;  // the stage from which fragments are loaded
    const auto load = [&](int buffer, int kb) {
        CUTE_UNROLL
        for (int i = 0; i < I; ++i) {
            auto& to = tCrA[buffer][i];
            Ldmatrix::copy(vector_at(stage[(a_offset ^ 16 * kb) + i * 16 * Depth::value]), to[0], to[1], to[2], to[3]);
        }
        CUTE_UNROLL
        for (int j = 0; j < J / 2; ++j) {
            auto& to = tCrB[buffer][j];
            Ldmatrix::copy(vector_at(stage[(b_offset ^ 16 * kb) + j * 16 * Depth::value]), to[0], to[1], to[2], to[3]);
        }
    };
    const auto multiply = [](float (&acc)[4], const uint32_t (&x)[4], const uint32_t* y) {
        Mma::fma(acc[0], acc[1], acc[2], acc[3], x[0], x[1], x[2], x[3], y[0], y[1], acc[0], acc[1], acc[2], acc[3]);
    };

    float tCrC[I][J][4] = {};
    CUTE_UNROLL
    for (int i = 0; i < STAGES - 1; ++i) fetch();
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    load(0, 0);
    CUTE_NO_UNROLL
    for (int k_tile = 0; k_tile * Depth::value < k; ++k_tile) {
        CUTE_UNROLL
        for (int kb = 0; kb < PARTS; ++kb) {
            const int current = kb % 2, next = (kb + 1) % PARTS;
            if (next == 0) {  // the next stage has arrived, and no warp still reads the previous one
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                stage = stage == ring + (STAGES - 1) * STAGE ? ring : stage + STAGE;
            }
            load(1 - current, next);
            if (kb == 0) fetch();
            CUTE_UNROLL
            for (int i = 0; i < I; ++i) {
                CUTE_UNROLL
                for (int j = 0; j < J; ++j) multiply(tCrC[i][j], tCrA[current][i], &tCrB[current][j / 2][j % 2 * 2]);
            }
        }
    }

    // Store through shared memory, in panels of 64 columns, so that whole rows of a panel are written.
    using Panels = Swizzled<Shape<Int<COLUMNS / Depth::value>, Int<ROWS>, Depth>>;
    const auto panels = make_tensor(make_smem_ptr(ring), Panels{});
    cp_async_wait<0>();
    __syncthreads();
    CUTE_UNROLL
    for (int i = 0; i < I; ++i) {
        CUTE_UNROLL
        for (int j = 0; j < J; ++j) {
            CUTE_UNROLL
            for (int v = 0; v < 4; v += 2) {
                const int at = MMA_Traits<Mma>::CLayout{}(lane_id, v);  // 16 x 8, by columns
                const int row = warp_row + 16 * i + at % 16, column = warp_column + 8 * j + at / 16;
                const auto pair = __floats2bfloat162_rn(tCrC[i][j][v], tCrC[i][j][v + 1]);
                auto& to = panels(column / Depth::value, row, column % Depth::value);
                reinterpret_cast<uint32_t&>(to) = reinterpret_cast<const uint32_t&>(pair);
            }
        }
    }
    __syncthreads();
    CUTE_UNROLL
    for (int panel = 0; panel < COLUMNS / Depth::value; ++panel) {
        const int column = first_column + panel * Depth::value + k_offset;
        CUTE_UNROLL
        for (int y = line; y < ROWS; y += LINES) {
            const int row = first_row + y;
            if (row < m && column < n) vector_at(mC(row, column)) = vector_at(panels(panel, y, k_offset));
        }
    }
}
