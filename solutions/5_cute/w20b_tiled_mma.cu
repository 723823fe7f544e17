// GEMM on tensor cores with a TiledMMA and TiledCopies: out[row, column] = sum over i of a[row, i] * b[column, i].
// a (m x k), b (n x k) and out (m x n) are row-major and bfloat16, the accumulators float32. A block computes a tile of
// 128 x 128 in steps of 64 along k. m and n are multiples of 128, and k is a multiple of 64.

#include <cute/tensor.hpp>

using namespace cute;

constexpr int STAGES = 3;

// 2 x 2 warps cover 32 x 32 x 16 of a tile at a time. Each warp has two atoms along n there, since one ldmatrix loads b's
// fragments for two.
using Mma = decltype(make_tiled_mma(MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>{}, Layout<Shape<_2, _2>>{}, Tile<_32, _32, _16>{}));

// 128 threads cover 16 rows of 64 elements: eight neighboring threads copy the 128 bytes of a row, 16 bytes each.
using Rows = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>, bfloat16_t>{},
                                      Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
using Ldmatrix = Copy_Atom<SM75_U32x4_LDSM_N, bfloat16_t>;  // four 8 x 8 matrices
using Pair = Copy_Atom<UniversalCopy<uint32_t>, bfloat16_t>;
using Vector = Copy_Atom<UniversalCopy<uint128_t>, bfloat16_t>;

// Eight rows of 128 bytes. The swizzle stores vector v of row r at v ^ r, so the eight vectors of a column span all banks.
using Swizzled = decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, _64>, Stride<_64, _1>>{}));
using Ring = decltype(tile_to_shape(Swizzled{}, Shape<_128, _64, Int<STAGES>>{}));
using OutTile = decltype(tile_to_shape(Swizzled{}, Shape<_128, _128>{}));

__global__ void __launch_bounds__(128) matmul(const bfloat16_t* a, const bfloat16_t* b, bfloat16_t* out, int m, int n, int k) {
    extern __shared__ __align__(128) bfloat16_t smem[];
    Tensor sA = make_tensor(make_smem_ptr(smem), Ring{});  // (128, 64, STAGES)
    Tensor sB = make_tensor(make_smem_ptr(smem + cosize_v<Ring>), Ring{});

    // The tiles of this block. Strides have 64 bits, because an offset may exceed 2^31.
    Tensor mA = make_tensor(make_gmem_ptr(a), make_shape(m, k), make_stride(int64_t(k), _1{}));
    Tensor mB = make_tensor(make_gmem_ptr(b), make_shape(n, k), make_stride(int64_t(k), _1{}));
    Tensor mC = make_tensor(make_gmem_ptr(out), make_shape(m, n), make_stride(int64_t(n), _1{}));
    Tensor gA = local_tile(mA, Shape<_128, _64>{}, make_coord(int(blockIdx.x), _));  // (128, 64, k / 64)
    Tensor gB = local_tile(mB, Shape<_128, _64>{}, make_coord(int(blockIdx.y), _));
    Tensor gC = local_tile(mC, Shape<_128, _128>{}, make_coord(int(blockIdx.x), int(blockIdx.y)));

    // A group is committed for every k-tile, also past the last one, so that the number of groups in flight is constant.
    const auto rows = Rows{}.get_slice(threadIdx.x);
    const auto fetch = [&](int k_tile) {
        if (k_tile < size<2>(gA)) {  // partitions are (vector, rows, columns, k-tile or stage)
            copy(Rows{}, rows.partition_S(gA)(_, _, _, k_tile), rows.partition_D(sA)(_, _, _, k_tile % STAGES));
            copy(Rows{}, rows.partition_S(gB)(_, _, _, k_tile), rows.partition_D(sB)(_, _, _, k_tile % STAGES));
        }
        cp_async_fence();
    };

    // The registers of this thread are (values of an atom, atoms along m or n, atoms along k), and (.., m, n) for C.
    const auto mma = Mma{}.get_slice(threadIdx.x);
    Tensor tCrA = mma.partition_fragment_A(sA(_, _, 0));
    Tensor tCrB = mma.partition_fragment_B(sB(_, _, 0));
    Tensor tCrC = mma.partition_fragment_C(gC);
    clear(tCrC);
    const auto copy_a = make_tiled_copy_A(Ldmatrix{}, Mma{}).get_slice(threadIdx.x);
    const auto copy_b = make_tiled_copy_B(Ldmatrix{}, Mma{}).get_slice(threadIdx.x);

    for (int k_tile = 0; k_tile < STAGES - 1; ++k_tile) fetch(k_tile);
    for (int k_tile = 0; k_tile < size<2>(gA); ++k_tile) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // all threads' copies of this stage are complete, and no warp still reads the previous stage
        fetch(k_tile + STAGES - 1);
        CUTE_UNROLL
        for (int step = 0; step < size<2>(tCrA); ++step) {
            copy(Ldmatrix{}, copy_a.partition_S(sA)(_, _, step, k_tile % STAGES), copy_a.retile_D(tCrA)(_, _, step));
            copy(Ldmatrix{}, copy_b.partition_S(sB)(_, _, step, k_tile % STAGES), copy_b.retile_D(tCrB)(_, _, step));
            gemm(Mma{}, tCrA(_, _, step), tCrB(_, _, step), tCrC);
        }
    }

    // Round, and store through shared memory, because a thread has only pairs of neighboring elements in its registers.
    __syncthreads();
    Tensor sC = make_tensor(make_smem_ptr(smem), OutTile{});
    Tensor rounded = make_fragment_like<bfloat16_t>(tCrC);
    copy(tCrC, rounded);
    const auto copy_c = make_tiled_copy_C(Pair{}, Mma{}).get_slice(threadIdx.x);
    copy(Pair{}, copy_c.retile_S(rounded), copy_c.partition_D(sC));
    __syncthreads();
    copy(Vector{}, rows.partition_S(sC), rows.partition_D(gC));
}
