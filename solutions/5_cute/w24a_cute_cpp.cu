// Matrix product on tensor cores in C++, with CuTe: out[row, column] = sum over i of a[row, i] * b[i, column]. a is m x k by
// rows, b is k x n by columns, out is m x n by rows. They are bfloat16, the sums float32; n and k are multiples of 8.
//
// Atoms name instructions (cp.async, ldmatrix, mma.sync), their traits say which thread holds which value, and layouts say
// where a value lies. All of them are types: the compiler computes what does not depend on m, n, k and the thread.

#include <cute/tensor.hpp>

using namespace cute;

using Copy = SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>;  // 16 bytes, zeros where the predicate is false
using Ldmatrix = SM75_U32x4_LDSM_N;                       // four 8 x 8 matrices
using Mma = SM80_16x8x16_F32BF16BF16F32_TN;               // sums (16 x 8) += a (16 x 16) * b (16 x 8)

constexpr int STAGES = 3, GROUP = 8;  // GROUP: rows of tiles that go along n together, and share a and b in L2
using Depth = _64;                    // of a stage along k: a row is 128 bytes, once round all banks
using Vector = _8;                    // elements of 16 bytes

// Rows of 64 elements, in which vector v of row r lies at v ^ r % 8: vectors below one another lie in different banks.
template <class Shape>
using Swizzled = decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape, decltype(compact_row_major(Shape{}))>{}));
template <int ROWS>
using Ring = Swizzled<Shape<Int<STAGES>, Int<ROWS>, Depth>>;

// lane -> (row, first element) of the vector that it names to ldmatrix. Registers 0 and 1 of b are 8 columns, 2 and 3 the next.
using RowsOfA = Layout<Shape<_16, _2>, Stride<_1, _0>>;
using RowsOfB = Layout<Shape<_8, _2, _2>, Stride<_1, _0, _8>>;
using DepthOfA = Layout<Shape<_16, _2>, Stride<_0, Vector>>;
using DepthOfB = Layout<Shape<_8, _2, _2>, Stride<_0, Vector, _0>>;

__device__ uint128_t& vector_at(bfloat16_t& first) { return reinterpret_cast<uint128_t&>(first); }
__device__ const uint128_t& vector_at(const bfloat16_t& first) { return reinterpret_cast<const uint128_t&>(first); }

template <int ROWS, int COLUMNS, int WARP_ROWS, int WARP_COLUMNS>  // of out: what a block makes, and a warp
__global__ void __launch_bounds__(ROWS / WARP_ROWS * (COLUMNS / WARP_COLUMNS) * 32)
matmul(const bfloat16_t* a, const bfloat16_t* b, bfloat16_t* out, int m, int n, int k) {
    constexpr int ACROSS = COLUMNS / WARP_COLUMNS, THREADS = ROWS / WARP_ROWS * ACROSS * 32;
    constexpr int I = WARP_ROWS / 16, J = WARP_COLUMNS / 8, PARTS = Depth::value / 16;

    const auto of_a = make_tensor(make_gmem_ptr(a), make_layout(make_shape(m, k), make_stride(int64_t(k), _1{})));
    const auto of_b = make_tensor(make_gmem_ptr(b), make_layout(make_shape(n, k), make_stride(int64_t(k), _1{})));
    const auto of_out = make_tensor(make_gmem_ptr(out), make_layout(make_shape(m, n), make_stride(int64_t(n), _1{})));

    extern __shared__ __align__(128) unsigned char shared[];
    const auto ring_a = make_tensor(make_smem_ptr(reinterpret_cast<bfloat16_t*>(shared)), Ring<ROWS>{});
    const auto ring_b = make_tensor(ring_a.data() + cosize_v<Ring<ROWS>>, Ring<COLUMNS>{});

    // Blocks are numbered down GROUP rows of tiles before they go on along n.
    const int down = ceil_div(m, ROWS), across = ceil_div(n, COLUMNS);
    const int group = blockIdx.x / (GROUP * across), in_group = blockIdx.x % (GROUP * across);
    const int height = min(GROUP, down - group * GROUP);
    const int first_row = (group * GROUP + in_group % height) * ROWS, first_column = in_group / height * COLUMNS;

    // A thread copies one vector of every LINES-th row.
    constexpr int LINES = THREADS / 8;
    const int line = threadIdx.x / 8, along = threadIdx.x % 8 * Vector::value;
    int depth = 0, filled = 0;  // of the stage that is fetched next
    const auto fetch = [&] {    // past the end of k it is filled with zeros
        const int i = depth + along;
        CUTE_UNROLL
        for (int y = line; y < ROWS; y += LINES) {
            const int row = first_row + y;
            Copy::copy(vector_at(of_a(row, i)), vector_at(ring_a(filled, y, along)), row < m && i < k);
        }
        CUTE_UNROLL
        for (int x = line; x < COLUMNS; x += LINES) {
            const int column = first_column + x;
            Copy::copy(vector_at(of_b(column, i)), vector_at(ring_b(filled, x, along)), column < n && i < k);
        }
        cp_async_fence();
        depth += Depth::value;
        filled = filled == STAGES - 1 ? 0 : filled + 1;
    };

    // Fragments: those in use, and the next.
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_row = warp / ACROSS * WARP_ROWS, warp_column = warp % ACROSS * WARP_COLUMNS;
    const int row_a = warp_row + RowsOfA{}(lane), row_b = warp_column + RowsOfB{}(lane);
    const int depth_a = DepthOfA{}(lane), depth_b = DepthOfB{}(lane);
    uint32_t fragment_a[2][I][4], fragment_b[2][J / 2][4];
    int stage = 0;              // that they are taken from
    const auto load = [&](int which, int part) {
        CUTE_UNROLL
        for (int i = 0; i < I; ++i) {
            auto& to = fragment_a[which][i];
            Ldmatrix::copy(vector_at(ring_a(stage, row_a + 16 * i, depth_a + 16 * part)), to[0], to[1], to[2], to[3]);
        }
        CUTE_UNROLL
        for (int j = 0; j < J / 2; ++j) {
            auto& to = fragment_b[which][j];
            Ldmatrix::copy(vector_at(ring_b(stage, row_b + 16 * j, depth_b + 16 * part)), to[0], to[1], to[2], to[3]);
        }
    };
    const auto multiply = [](float (&sum)[4], const uint32_t (&x)[4], const uint32_t* y) {
        Mma::fma(sum[0], sum[1], sum[2], sum[3], x[0], x[1], x[2], x[3], y[0], y[1], sum[0], sum[1], sum[2], sum[3]);
    };

    float sums[I][J][4] = {};
    CUTE_UNROLL
    for (int i = 0; i < STAGES - 1; ++i) fetch();
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    load(0, 0);
    CUTE_NO_UNROLL
    for (int step = 0; step * Depth::value < k; ++step) {
        CUTE_UNROLL
        for (int part = 0; part < PARTS; ++part) {
            const int now = part % 2, next = (part + 1) % PARTS;
            if (next == 0) {  // the next stage is there, and no warp reads the one before this any more
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                stage = stage == STAGES - 1 ? 0 : stage + 1;
            }
            load(1 - now, next);
            if (part == 0) fetch();
            CUTE_UNROLL
            for (int i = 0; i < I; ++i) {
                CUTE_UNROLL
                for (int j = 0; j < J; ++j) multiply(sums[i][j], fragment_a[now][i], &fragment_b[now][j / 2][j % 2 * 2]);
            }
        }
    }

    // Through shared memory, in panels of 64 columns, so that whole rows of a panel go out.
    using Panels = Swizzled<Shape<Int<COLUMNS / Depth::value>, Int<ROWS>, Depth>>;
    const auto panels = make_tensor(ring_a.data(), Panels{});
    cp_async_wait<0>();
    __syncthreads();
    CUTE_UNROLL
    for (int i = 0; i < I; ++i) {
        CUTE_UNROLL
        for (int j = 0; j < J; ++j) {
            CUTE_UNROLL
            for (int v = 0; v < 4; v += 2) {
                const int at = MMA_Traits<Mma>::CLayout{}(lane, v);  // 16 x 8, by columns
                const int row = warp_row + 16 * i + at % 16, column = warp_column + 8 * j + at / 16;
                const auto pair = __floats2bfloat162_rn(sums[i][j][v], sums[i][j][v + 1]);
                auto& to = panels(column / Depth::value, row, column % Depth::value);
                reinterpret_cast<uint32_t&>(to) = reinterpret_cast<const uint32_t&>(pair);
            }
        }
    }
    __syncthreads();
    CUTE_UNROLL
    for (int panel = 0; panel < COLUMNS / Depth::value; ++panel) {
        const int column = first_column + panel * Depth::value + along;
        CUTE_UNROLL
        for (int y = line; y < ROWS; y += LINES) {
            const int row = first_row + y;
            if (row < m && column < n) vector_at(of_out(row, column)) = vector_at(panels(panel, y, along));
        }
    }
}
