// Layouts alone: CuTe's swizzle for addresses, instructions in inline PTX.
#include <cute/layout.hpp>
#include <cute/swizzle_layout.hpp>
#include <cuda_bf16.h>

constexpr auto tile = cute::composition(cute::Swizzle<3, 3, 3>{},
    cute::make_layout(cute::make_shape(cute::Int<64>{}, cute::Int<64>{}), cute::GenRowMajor{}));

__global__ void __launch_bounds__(128) matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int m, int n, int k) {
    __shared__ __align__(16) __nv_bfloat16 x[4096], y[4096];
    const int lane = threadIdx.x, warp = threadIdx.y, row = blockIdx.x * 64, column = blockIdx.y * 64;
    float sum[8][4] = {};
    for (int depth = 0; depth < k; depth += 64) {
        __syncthreads();
        for (int i = warp * 32 + lane; i < 512; i += 128) {
            const int r = i >> 3, c = (i & 7) << 3;
            uint4 p = {}, q = {};
            if (depth + c < k && row + r < m) p = *(const uint4*)&a[(size_t)(row + r) * k + depth + c];
            if (depth + c < k && column + r < n) q = *(const uint4*)&b[(size_t)(column + r) * k + depth + c];
            *(uint4*)&x[tile(r, c)] = p;
            *(uint4*)&y[tile(r, c)] = q;
        }
        __syncthreads();
        for (int d = 0; d < 64; d += 16) {
            unsigned f[4], g[2];
            unsigned from = __cvta_generic_to_shared(&x[tile(warp * 16 + lane % 16, d + lane / 16 * 8)]);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(from));
            for (int j = 0; j < 8; ++j) {
                from = __cvta_generic_to_shared(&y[tile(j * 8 + lane % 8, d + lane / 8 % 2 * 8)]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(g[0]), "=r"(g[1]) : "r"(from));
                asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                    : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
                    : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "r"(g[0]), "r"(g[1]));
            }
        }
    }
    for (int j = 0; j < 8; ++j)
        for (int h = 0; h < 2; ++h) {
            const int r = row + warp * 16 + lane / 4 + 8 * h, c = column + j * 8 + lane % 4 * 2;
            if (r < m && c < n) *(__nv_bfloat162*)&out[(size_t)r * n + c] = __floats2bfloat162_rn(sum[j][2 * h], sum[j][2 * h + 1]);
        }
}
