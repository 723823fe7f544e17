// In the style of NVIDIA's sample cudaTensorCoreGemm: a block of 8 warps makes 128 x 64 of D. Tiles of A and B, with SKEW
// against bank conflicts, are in shared memory; a warp has 2 x 2 accumulators of 16 x 16.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

#define WARP_SIZE 32
#define M 16
#define N 16
#define K 16
#define BLOCK_ROWS 128
#define BLOCK_COLS 64
#define CHUNK_K 32
#define SKEW 8
#define WARPS_PER_BLOCK 8
#define THREADS_PER_BLOCK (WARP_SIZE * WARPS_PER_BLOCK)

template <typename T>
__global__ void compute_gemm(const T *A, const T *B, T *D, int m_global, int n_global, int k_global) {
  __shared__ __align__(32) T shmem_a[BLOCK_ROWS][CHUNK_K + SKEW];
  __shared__ __align__(32) T shmem_b[CHUNK_K][BLOCK_COLS + SKEW];
  __shared__ __align__(32) float shmem_d[WARPS_PER_BLOCK][M][2 * N + SKEW];

  const unsigned int warpId = threadIdx.x / WARP_SIZE;
  const unsigned int laneId = threadIdx.x % WARP_SIZE;
  const int block_row = blockIdx.y * BLOCK_ROWS, block_col = blockIdx.x * BLOCK_COLS;
  const int warp_row = warpId / 2 * 2 * M, warp_col = warpId % 2 * 2 * N;

  wmma::fragment<wmma::accumulator, M, N, K, float> c[2][2];
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 2; j++) wmma::fill_fragment(c[i][j], 0.0f);

  for (int tile_k = 0; tile_k < k_global; tile_k += CHUNK_K) {
    for (int e = threadIdx.x; e < BLOCK_ROWS * CHUNK_K; e += THREADS_PER_BLOCK) {
      const int y = e / CHUNK_K, x = e % CHUNK_K;
      const bool valid = block_row + y < m_global && tile_k + x < k_global;
      shmem_a[y][x] = valid ? A[(size_t)(block_row + y) * k_global + tile_k + x] : static_cast<T>(0.0f);
    }
    for (int e = threadIdx.x; e < CHUNK_K * BLOCK_COLS; e += THREADS_PER_BLOCK) {
      const int y = e / BLOCK_COLS, x = e % BLOCK_COLS;
      const bool valid = tile_k + y < k_global && block_col + x < n_global;
      shmem_b[y][x] = valid ? B[(size_t)(tile_k + y) * n_global + block_col + x] : static_cast<T>(0.0f);
    }
    __syncthreads();

#pragma unroll
    for (int k_step = 0; k_step < CHUNK_K; k_step += K) {
      wmma::fragment<wmma::matrix_a, M, N, K, T, wmma::row_major> a[2];
      wmma::fragment<wmma::matrix_b, M, N, K, T, wmma::row_major> b[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        wmma::load_matrix_sync(a[i], &shmem_a[warp_row + i * M][k_step], CHUNK_K + SKEW);
#pragma unroll
        for (int j = 0; j < 2; j++) {
          if (i == 0) {
            wmma::load_matrix_sync(b[j], &shmem_b[k_step][warp_col + j * N], BLOCK_COLS + SKEW);
          }
          wmma::mma_sync(c[i][j], a[i], b[j], c[i][j]);
        }
      }
    }
    __syncthreads();
  }

  for (int i = 0; i < 2; i++) {
    for (int j = 0; j < 2; j++) {
      wmma::store_matrix_sync(&shmem_d[warpId][0][j * N], c[i][j], 2 * N + SKEW, wmma::mem_row_major);
    }
    __syncwarp();
    for (int row = 0; row < M; row++) {
      const int y = block_row + warp_row + i * M + row, x = block_col + warp_col + laneId;
      if (y < m_global && x < n_global) D[(size_t)y * n_global + x] = static_cast<T>(shmem_d[warpId][row][laneId]);
    }
    __syncwarp();
  }
}
