// hgemm as it is often written: everything in PTX, cp.async in three stages of 32 steps, rows padded by 16 bytes in place
// of a swizzle, sums stored in pairs from registers. Another instance takes rows that are no multiples of 16 bytes.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define CP_ASYNC(dst, src, bytes) \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(dst), "l"(src), "r"(bytes))
#define CP_ASYNC_COMMIT() asm volatile("cp.async.commit_group;\n" ::)
#define CP_ASYNC_WAIT(n) asm volatile("cp.async.wait_group %0;\n" ::"n"(n))
#define LDMATRIX_X4(r0, r1, r2, r3, addr)                                            \
    asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];\n" \
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(addr))
#define LDMATRIX_X2_T(r0, r1, addr)                                                  \
    asm volatile("ldmatrix.sync.aligned.x2.trans.m8n8.shared.b16 {%0, %1}, [%2];\n"  \
                 : "=r"(r0), "=r"(r1) : "r"(addr))
#define MMA(TYPE, c, a, b)                                                                            \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, "     \
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"                                    \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

constexpr int BM = 128, BN = 128, BK = 32, STAGE = 3, PAD = 8;
constexpr int LDA = BK + PAD, LDB = BN + PAD, STAGE_ELEMENTS = BM * LDA + BK * LDB;

__device__ void multiply(__half, float* c, unsigned* a, unsigned* b) { MMA("f16", c, a, b); }
__device__ void multiply(__nv_bfloat16, float* c, unsigned* a, unsigned* b) { MMA("bf16", c, a, b); }

template <typename T, bool ALIGNED>
__global__ void __launch_bounds__(256) hgemm(const T* A, const T* B, T* C, int M, int N, int K) {
    extern __shared__ __align__(16) unsigned short smem[];
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const int wm = (warp >> 2) * 64, wn = (warp & 3) * 32;
    const int tiles = (K + BK - 1) / BK;
    float c[4][4][4] = {};

    auto load = [&](int tile) {
        unsigned short* sa = smem + tile % STAGE * STAGE_ELEMENTS;
        unsigned short* sb = sa + BM * LDA;
        if (tile < tiles) {
            constexpr int VEC = ALIGNED ? 8 : 1;
            for (int i = tid * VEC; i < BM * BK; i += 256 * VEC) {
                const int r = i / BK, col = i % BK;
                const bool in = m0 + r < M && tile * BK + col < K;
                const T* src = A + (in ? (size_t)(m0 + r) * K + tile * BK + col : 0);
                if constexpr (ALIGNED) {
                    CP_ASYNC((unsigned)__cvta_generic_to_shared(sa + r * LDA + col), src, in ? 16 : 0);
                } else {
                    sa[r * LDA + col] = in ? *(const unsigned short*)src : 0;
                }
            }
            for (int i = tid * VEC; i < BK * BN; i += 256 * VEC) {
                const int r = i / BN, col = i % BN;
                const bool in = tile * BK + r < K && n0 + col < N;
                const T* src = B + (in ? (size_t)(tile * BK + r) * N + n0 + col : 0);
                if constexpr (ALIGNED) {
                    CP_ASYNC((unsigned)__cvta_generic_to_shared(sb + r * LDB + col), src, in ? 16 : 0);
                } else {
                    sb[r * LDB + col] = in ? *(const unsigned short*)src : 0;
                }
            }
        }
        CP_ASYNC_COMMIT();
    };

    for (int s = 0; s < STAGE - 1; ++s) load(s);
    for (int tile = 0; tile < tiles; ++tile) {
        CP_ASYNC_WAIT(STAGE - 2);
        __syncthreads();
        load(tile + STAGE - 1);
        const unsigned short* sa = smem + tile % STAGE * STAGE_ELEMENTS;
        const unsigned short* sb = sa + BM * LDA;
        for (int kk = 0; kk < BK; kk += 16) {
            unsigned a[4][4], b[4][2];
            for (int i = 0; i < 4; ++i) {
                const unsigned addr = __cvta_generic_to_shared(sa + (wm + i * 16 + (lane & 15)) * LDA + kk + (lane >> 4) * 8);
                LDMATRIX_X4(a[i][0], a[i][1], a[i][2], a[i][3], addr);
            }
            for (int j = 0; j < 4; ++j) {
                const unsigned addr = __cvta_generic_to_shared(sb + (kk + (lane & 15)) * LDB + wn + j * 8);
                LDMATRIX_X2_T(b[j][0], b[j][1], addr);
            }
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) multiply(T(), c[i][j], a[i], b[j]);
        }
    }
    CP_ASYNC_WAIT(0);

    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
            for (int h = 0; h < 2; ++h) {
                const int row = m0 + wm + i * 16 + h * 8 + (lane >> 2), col = n0 + wn + j * 8 + (lane & 3) * 2;
                if (row >= M) continue;
                T* to = C + (size_t)row * N + col;
                if (ALIGNED && col < N) {
                    alignas(4) T two[2] = {T(c[i][j][2 * h]), T(c[i][j][2 * h + 1])};
                    *(unsigned*)to = *(unsigned*)two;
                } else if (!ALIGNED) {
                    if (col < N) to[0] = T(c[i][j][2 * h]);
                    if (col + 1 < N) to[1] = T(c[i][j][2 * h + 1]);
                }
            }
}
