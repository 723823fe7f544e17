// GEMM on tensor cores with a TiledMMA and TiledCopies: out[row, column] = sum over i of a[row, i] * b[column, i].
// a (m x k), b (n x k) and out (m x n) are row-major and bfloat16, the accumulators float32. A block computes a tile of
// 128 x 128 in steps of 64 along k. m and n are multiples of 128, and k is a multiple of 64.

#include <cute/tensor.hpp>

using namespace cute;

// TODO: the type of the TiledMMA, by make_tiled_mma; of a TiledCopy with 16-byte cp.async, by make_tiled_copy; the copy atoms
// TODO: the layouts in shared memory: a ring of stages, and the tile of out, by tile_to_shape of a swizzled atom

__global__ void __launch_bounds__(128) matmul(const bfloat16_t* a, const bfloat16_t* b, bfloat16_t* out, int m, int n, int k) {
    // TODO: tensors of shared memory; the tiles of this block in global memory
    // TODO: what this thread copies to a stage; its fragments, and what it copies to them
    // TODO: for each tile along k: wait for its stage, fetch a later one, copy fragments, multiply
    // TODO: round the accumulators; copy them to shared memory, and from there to out
}
