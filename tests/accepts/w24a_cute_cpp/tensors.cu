// Tensors everywhere: static shared memory with a swizzled layout, indexed by row and column; two stages.
#include <cute/tensor.hpp>
using namespace cute;

using SmemLayout = decltype(composition(Swizzle<3, 3, 3>{},
                                        Layout<Shape<_64, _64, _2>, Stride<_64, _1, Int<64 * 64>>>{}));

__global__ __launch_bounds__(128) void matmul(bfloat16_t const* A, bfloat16_t const* B, bfloat16_t* C, int M, int N, int K) {
  alignas(128) __shared__ bfloat16_t smemA[64 * 64 * 2];
  alignas(128) __shared__ bfloat16_t smemB[64 * 64 * 2];
  Tensor mA = make_tensor(make_gmem_ptr(A), make_shape(M, K), make_stride((int64_t)K, _1{}));
  Tensor mB = make_tensor(make_gmem_ptr(B), make_shape(N, K), make_stride((int64_t)K, _1{}));
  Tensor mC = make_tensor(make_gmem_ptr(C), make_shape(M, N), make_stride((int64_t)N, _1{}));
  Tensor sA = make_tensor(make_smem_ptr(smemA), SmemLayout{});
  Tensor sB = make_tensor(make_smem_ptr(smemB), SmemLayout{});
  int const bm = blockIdx.y * 64, bn = blockIdx.x * 64;
  int const lane = threadIdx.x % 32, wm = threadIdx.x / 64 * 32, wn = threadIdx.x / 32 % 2 * 32;
  using CpAsync = SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>;

  auto prefetch = [&](int k_tile, int stage) {
    for (int i = threadIdx.x; i < 64 * 8; i += 128) {
      int const r = i / 8, c = i % 8 * 8, k = k_tile * 64 + c;
      CpAsync::copy(reinterpret_cast<uint128_t const&>(mA(bm + r, k)), reinterpret_cast<uint128_t&>(sA(r, c, stage)),
                    bm + r < M && k < K);
      CpAsync::copy(reinterpret_cast<uint128_t const&>(mB(bn + r, k)), reinterpret_cast<uint128_t&>(sB(r, c, stage)),
                    bn + r < N && k < K);
    }
    cp_async_fence();
  };

  float acc[2][4][4] = {};
  int const k_tiles = ceil_div(K, 64);
  prefetch(0, 0);
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    int const stage = k_tile % 2;
    cp_async_wait<0>();
    __syncthreads();
    if (k_tile + 1 < k_tiles) prefetch(k_tile + 1, 1 - stage);
    for (int k = 0; k < 64; k += 16) {
      uint32_t a[2][4], b[2][4];
      for (int i = 0; i < 2; ++i) {
        SM75_U32x4_LDSM_N::copy(reinterpret_cast<uint128_t const&>(sA(wm + 16 * i + lane % 16, k + lane / 16 * 8, stage)),
                                a[i][0], a[i][1], a[i][2], a[i][3]);
        SM75_U32x4_LDSM_N::copy(
            reinterpret_cast<uint128_t const&>(sB(wn + 16 * i + lane % 8 + lane / 16 * 8, k + lane / 8 % 2 * 8, stage)),
            b[i][0], b[i][1], b[i][2], b[i][3]);
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) {
          float(&d)[4] = acc[i][j];
          SM80_16x8x16_F32BF16BF16F32_TN::fma(d[0], d[1], d[2], d[3], a[i][0], a[i][1], a[i][2], a[i][3],
                                              b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], d[0], d[1], d[2], d[3]);
        }
    }
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int h = 0; h < 2; ++h) {
        int const r = bm + wm + 16 * i + 8 * h + lane / 4, c = bn + wn + 8 * j + lane % 4 * 2;
        if (r < M && c < N)
          reinterpret_cast<__nv_bfloat162&>(mC(r, c)) = __floats2bfloat162_rn(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
      }
}
