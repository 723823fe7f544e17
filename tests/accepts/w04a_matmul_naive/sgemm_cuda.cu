#pragma once

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

template <const uint BLOCKSIZE>
__global__ void sgemm_global_mem_coalesce(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                                          float *C) {
  const int cRow = blockIdx.x * BLOCKSIZE + (threadIdx.x / BLOCKSIZE);
  const int cCol = blockIdx.y * BLOCKSIZE + (threadIdx.x % BLOCKSIZE);

  // if statement is necessary to make things work under tile quantization
  if (cRow < M && cCol < N) {
    float tmp = 0.0;
    for (int i = 0; i < K; ++i) {
      tmp += A[(size_t)cRow * K + i] * B[(size_t)i * N + cCol];
    }
    const size_t at = (size_t)cRow * N + cCol;
    C[at] = beta == 0.f ? alpha * tmp : alpha * tmp + beta * C[at];
  }
}
