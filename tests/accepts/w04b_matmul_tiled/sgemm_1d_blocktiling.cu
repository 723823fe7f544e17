#include <assert.h>

template <const int BM, const int BN, const int BK, const int TM>
__global__ void sgemm1DBlocktiling(int M, int N, int K, const float *A, const float *B, float *C) {
  const uint cRow = blockIdx.y;
  const uint cCol = blockIdx.x;

  // each warp will calculate 32*TM elements, with 32 being the columnar dim.
  const int threadCol = threadIdx.x % BN;
  const int threadRow = threadIdx.x / BN;

  __shared__ float As[BM * BK];
  __shared__ float Bs[BK * BN];

  assert(BM * BK == blockDim.x);
  assert(BN * BK == blockDim.x);
  const uint innerColA = threadIdx.x % BK;
  const uint innerRowA = threadIdx.x / BK;
  const uint innerColB = threadIdx.x % BN;
  const uint innerRowB = threadIdx.x / BN;

  // allocate thread-local cache for results in registerfile
  float threadResults[TM] = {0.0};

  for (uint bkIdx = 0; bkIdx < K; bkIdx += BK) {
    const uint rowA = cRow * BM + innerRowA, colA = bkIdx + innerColA;
    const uint rowB = bkIdx + innerRowB, colB = cCol * BN + innerColB;
    As[innerRowA * BK + innerColA] = rowA < M && colA < K ? A[(size_t)rowA * K + colA] : 0.0f;
    Bs[innerRowB * BN + innerColB] = rowB < K && colB < N ? B[(size_t)rowB * N + colB] : 0.0f;
    __syncthreads();

    for (uint dotIdx = 0; dotIdx < BK; ++dotIdx) {
      // we make the dotproduct loop the outside loop, to reuse the Bs entry
      float tmpB = Bs[dotIdx * BN + threadCol];
      for (uint resIdx = 0; resIdx < TM; ++resIdx) {
        threadResults[resIdx] += As[(threadRow * TM + resIdx) * BK + dotIdx] * tmpB;
      }
    }
    __syncthreads();
  }

  for (uint resIdx = 0; resIdx < TM; ++resIdx) {
    const uint row = cRow * BM + threadRow * TM + resIdx, col = cCol * BN + threadCol;
    if (row < M && col < N) C[(size_t)row * N + col] = threadResults[resIdx];
  }
}
