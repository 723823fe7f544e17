#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
const int WARPSIZE = 32;

// Tiles of a warp, each in WMITER x WNITER parts, as in the last kernels of SGEMM_CUDA; with guards for any size.
template <const int BM, const int BN, const int BK, const int WM, const int WN, const int WNITER, const int TM,
          const int TN, const int NUM_THREADS, const bool ALIGNED>
__global__ void __launch_bounds__(NUM_THREADS)
    sgemmWarptiling(int M, int N, int K, const float *A, const float *B, float *C) {
  const uint cRow = blockIdx.y, cCol = blockIdx.x;
  const uint warpIdx = threadIdx.x / WARPSIZE;
  const uint warpCol = warpIdx % (BN / WN), warpRow = warpIdx / (BN / WN);

  constexpr uint WMITER = (WM * WN) / (WARPSIZE * TM * TN * WNITER);
  constexpr uint WSUBM = WM / WMITER, WSUBN = WN / WNITER;
  const uint lane = threadIdx.x % WARPSIZE;
  const uint threadColInWarp = lane % (WSUBN / TN), threadRowInWarp = lane / (WSUBN / TN);

  constexpr int AS = BM + 4;
  __shared__ float As[AS * BK];
  __shared__ float Bs[BN * BK];

  float threadResults[WMITER * TM * WNITER * TN] = {0.0};
  float regM[WMITER * TM] = {0.0};
  float regN[WNITER * TN] = {0.0};

  for (int bkIdx = 0; bkIdx < K; bkIdx += BK) {
#pragma unroll
    for (uint l = 0; l < BM * BK / 4 / NUM_THREADS; ++l) {
      const uint i = threadIdx.x + l * NUM_THREADS;
      const uint innerRow = i / (BK / 4), innerCol = i % (BK / 4);
      const long long row = (long long)cRow * BM + innerRow;
      const int col = bkIdx + innerCol * 4;
      float4 tmp = {0, 0, 0, 0};
      if (row < M) {
        const float *from = A + row * K + col;
        if (ALIGNED) {
          if (col < K) tmp = reinterpret_cast<const float4 *>(from)[0];
        } else {
          if (col < K) tmp.x = from[0];
          if (col + 1 < K) tmp.y = from[1];
          if (col + 2 < K) tmp.z = from[2];
          if (col + 3 < K) tmp.w = from[3];
        }
      }
      As[(innerCol * 4 + 0) * AS + innerRow] = tmp.x;
      As[(innerCol * 4 + 1) * AS + innerRow] = tmp.y;
      As[(innerCol * 4 + 2) * AS + innerRow] = tmp.z;
      As[(innerCol * 4 + 3) * AS + innerRow] = tmp.w;
    }
#pragma unroll
    for (uint l = 0; l < BN * BK / 4 / NUM_THREADS; ++l) {
      const uint i = threadIdx.x + l * NUM_THREADS;
      const uint innerRow = i / (BN / 4), innerCol = i % (BN / 4);
      const long long row = bkIdx + innerRow;
      const int col = cCol * BN + innerCol * 4;
      float4 tmp = {0, 0, 0, 0};
      if (row < K) {
        const float *from = B + row * N + col;
        if (ALIGNED) {
          if (col < N) tmp = reinterpret_cast<const float4 *>(from)[0];
        } else {
          if (col < N) tmp.x = from[0];
          if (col + 1 < N) tmp.y = from[1];
          if (col + 2 < N) tmp.z = from[2];
          if (col + 3 < N) tmp.w = from[3];
        }
      }
      reinterpret_cast<float4 *>(&Bs[innerRow * BN + innerCol * 4])[0] = tmp;
    }
    __syncthreads();
#pragma unroll
    for (uint dotIdx = 0; dotIdx < BK; ++dotIdx) {
      for (uint wSubRowIdx = 0; wSubRowIdx < WMITER; ++wSubRowIdx) {
        for (uint i = 0; i < TM; ++i) {
          regM[wSubRowIdx * TM + i] =
              As[(dotIdx * AS) + warpRow * WM + wSubRowIdx * WSUBM + threadRowInWarp * TM + i];
        }
      }
      for (uint wSubColIdx = 0; wSubColIdx < WNITER; ++wSubColIdx) {
        for (uint i = 0; i < TN; ++i) {
          regN[wSubColIdx * TN + i] =
              Bs[(dotIdx * BN) + warpCol * WN + wSubColIdx * WSUBN + threadColInWarp * TN + i];
        }
      }
      for (uint wSubRowIdx = 0; wSubRowIdx < WMITER; ++wSubRowIdx) {
        for (uint wSubColIdx = 0; wSubColIdx < WNITER; ++wSubColIdx) {
          for (uint m = 0; m < TM; ++m) {
            for (uint n = 0; n < TN; ++n) {
              threadResults[(wSubRowIdx * TM + m) * (WNITER * TN) + wSubColIdx * TN + n] +=
                  regM[wSubRowIdx * TM + m] * regN[wSubColIdx * TN + n];
            }
          }
        }
      }
    }
    __syncthreads();
  }

  for (uint wSubRowIdx = 0; wSubRowIdx < WMITER; ++wSubRowIdx) {
    for (uint wSubColIdx = 0; wSubColIdx < WNITER; ++wSubColIdx) {
      for (uint m = 0; m < TM; m += 1) {
        const long long row = cRow * BM + warpRow * WM + wSubRowIdx * WSUBM + threadRowInWarp * TM + m;
        const int col = cCol * BN + warpCol * WN + wSubColIdx * WSUBN + threadColInWarp * TN;
        if (row >= M) continue;
        for (uint n = 0; n < TN; n += 4) {
          const float *from = &threadResults[(wSubRowIdx * TM + m) * (WNITER * TN) + wSubColIdx * TN + n];
          float *to = C + row * N + col + n;
          if (ALIGNED) {
            if (col + (int)n < N) *reinterpret_cast<float4 *>(to) = make_float4(from[0], from[1], from[2], from[3]);
          } else {
            for (int e = 0; e < 4; ++e)
              if (col + (int)n + e < N) to[e] = from[e];
          }
        }
      }
    }
  }
}
