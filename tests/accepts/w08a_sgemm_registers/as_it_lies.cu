#include <cuda/std/cstdint>

// The tile of a is not transposed: a thread reads 16 bytes along k, four steps at a time, of each of its 8 rows.
constexpr int BM = 128, BN = 128, BK = 16, PITCH = BK;

__device__ float4 four(const float* matrix, int rows, int columns, int row, int column) {
    if (row >= rows || column >= columns) return make_float4(0, 0, 0, 0);
    const float* from = matrix + (cuda::std::int64_t)row * columns + column;
    if (columns % 4 == 0 && reinterpret_cast<cuda::std::uintptr_t>(matrix) % 16 == 0) return __ldg((const float4*)from);
    return make_float4(from[0], column + 1 < columns ? from[1] : 0, column + 2 < columns ? from[2] : 0,
                       column + 3 < columns ? from[3] : 0);
}

extern "C" __global__ void __launch_bounds__(256, 2)
sgemm_rows(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k)
{
    __shared__ __align__(16) float as[BM * PITCH];
    __shared__ __align__(16) float bs[BK * BN];
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const int ty = (warp >> 1) * 32 + (lane >> 3), tx = (warp & 1) * 64 + (lane & 7) * 4;

    float c[8][8];
    #pragma unroll
    for (int i = 0; i < 64; ++i) c[i / 8][i % 8] = 0.f;

    for (int k0 = 0; k0 < k; k0 += BK) {
        #pragma unroll
        for (int l = 0; l < 2; ++l) {
            int i = tid + 256 * l;
            *(float4*)&as[(i >> 2) * PITCH + (i & 3) * 4] = four(a, m, k, row0 + (i >> 2), k0 + (i & 3) * 4);
            *(float4*)&bs[(i >> 5) * BN + (i & 31) * 4] = four(b, k, n, k0 + (i >> 5), col0 + (i & 31) * 4);
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < BK; kk += 4) {
            float4 ra[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i) ra[i] = *(float4*)&as[(ty + 4 * i) * PITCH + kk];
            #pragma unroll
            for (int s = 0; s < 4; ++s) {
                float4 lo = *(float4*)&bs[(kk + s) * BN + tx], hi = *(float4*)&bs[(kk + s) * BN + tx + 32];
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    float x = s == 0 ? ra[i].x : s == 1 ? ra[i].y : s == 2 ? ra[i].z : ra[i].w;
                    c[i][0] = fmaf(x, lo.x, c[i][0]); c[i][1] = fmaf(x, lo.y, c[i][1]);
                    c[i][2] = fmaf(x, lo.z, c[i][2]); c[i][3] = fmaf(x, lo.w, c[i][3]);
                    c[i][4] = fmaf(x, hi.x, c[i][4]); c[i][5] = fmaf(x, hi.y, c[i][5]);
                    c[i][6] = fmaf(x, hi.z, c[i][6]); c[i][7] = fmaf(x, hi.w, c[i][7]);
                }
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        int row = row0 + ty + 4 * i;
        if (row >= m) return;
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            int col = col0 + tx + 32 * h;
            float* o = out + (cuda::std::int64_t)row * n + col;
            if ((n & 3) == 0) {
                if (col < n) __stcs((float4*)o, make_float4(c[i][4*h], c[i][4*h+1], c[i][4*h+2], c[i][4*h+3]));
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) if (col + e < n) o[e] = c[i][4*h+e];
            }
        }
    }
}
