// A tile of 64 x 64 by 4 warps of 32 x 32. Fragments are taken from shared memory as the tables of the PTX manual
// say, with no ldmatrix. Rows of the tiles are padded, so that the words of a request lie in different banks.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ void mma(float* d, const unsigned* a, const unsigned* b, __nv_bfloat16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ void mma(float* d, const unsigned* a, const unsigned* b, __half) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <typename T>
__global__ void matmul(const T* a, const T* b, T* out, int m, int n, int k) {
    __shared__ __align__(16) T As[64][40];   // 32 along k and 8 of padding
    __shared__ __align__(16) T Bs[32][72];
    const int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int wr = warp / 2 * 32, wc = warp % 2 * 32;
    float acc[2][4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 32) {
        for (int i = threadIdx.x; i < 64 * 32; i += 128) {
            const int y = i / 32, x = i % 32;
            As[y][x] = row0 + y < m && k0 + x < k ? a[(size_t)(row0 + y) * k + k0 + x] : T(0.0f);
        }
        for (int i = threadIdx.x; i < 32 * 64; i += 128) {
            const int y = i / 64, x = i % 64;
            Bs[y][x] = k0 + y < k && col0 + x < n ? b[(size_t)(k0 + y) * n + col0 + x] : T(0.0f);
        }
        __syncthreads();
        for (int kk = 0; kk < 32; kk += 16) {
            unsigned fa[2][4], fb[4][2];
            for (int i = 0; i < 2; i++)
                for (int r = 0; r < 4; r++)
                    fa[i][r] = *(const unsigned*)&As[wr + i * 16 + g + r % 2 * 8][kk + 2 * t + r / 2 * 8];
            for (int j = 0; j < 4; j++)
                for (int r = 0; r < 2; r++) {
                    // two rows of b, one below the other, make a register
                    const unsigned low = *(const unsigned short*)&Bs[kk + 2 * t + r * 8][wc + j * 8 + g];
                    const unsigned high = *(const unsigned short*)&Bs[kk + 2 * t + r * 8 + 1][wc + j * 8 + g];
                    fb[j][r] = low | high << 16;
                }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++) mma(acc[i][j], fa[i], fb[j], T());
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < 4; e += 2) {
                const int row = row0 + wr + i * 16 + g + e / 2 * 8, col = col0 + wc + j * 8 + 2 * t;
                alignas(4) T pair[2] = {T(acc[i][j][e]), T(acc[i][j][e + 1])};
                T* to = out + (size_t)row * n + col;
                if (row < m && n % 2 == 0 && col < n) {
                    *(unsigned*)to = *(unsigned*)pair;
                } else {
                    if (row < m && col < n) to[0] = pair[0];
                    if (row < m && col + 1 < n) to[1] = pair[1];
                }
            }
}
