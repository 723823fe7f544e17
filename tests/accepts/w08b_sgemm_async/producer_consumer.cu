#include <cuda/pipeline>
#include <cooperative_groups.h>
#pragma nv_diag_suppress static_var_with_dynamic_init
namespace cg = cooperative_groups;
constexpr int BM = 64, BN = 64, BK = 16, STAGES = 3, PRODUCERS = 64, CONSUMERS = 64, PAD = 4;
struct Stage { float a[BK][BM + PAD]; float b[BK][BN]; };
__global__ void __launch_bounds__(PRODUCERS + CONSUMERS) matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    extern __shared__ __align__(16) unsigned char raw[];
    Stage* stages = reinterpret_cast<Stage*>(raw);
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    const auto role = block.thread_rank() < PRODUCERS ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(block, &state, role);
    const long long r0 = blockIdx.y * (long long)BM, c0 = blockIdx.x * (long long)BN;
    const int steps = (k + BK - 1) / BK;
    if (role == cuda::pipeline_role::producer) {
        const int t = threadIdx.x;
        for (int step = 0; step < steps; ++step) {
            Stage& s = stages[step % STAGES];
            const int k0 = step * BK;
            pipe.producer_acquire();
            for (int e = t; e < BM * BK; e += PRODUCERS) {
                const int r = e / BK, kk = e % BK;
                if (r0 + r < m && k0 + kk < k) cuda::memcpy_async(&s.a[kk][r], a + (r0 + r) * k + k0 + kk, sizeof(float), pipe);
                else s.a[kk][r] = 0;
            }
            for (int e = t; e < BN * BK; e += PRODUCERS) {
                const int kk = e / BN, c = e % BN;
                if (k0 + kk < k && c0 + c < n) cuda::memcpy_async(&s.b[kk][c], b + (long long)(k0 + kk) * n + c0 + c, sizeof(float), pipe);
                else s.b[kk][c] = 0;
            }
            pipe.producer_commit();
        }
    } else {
        const int t = threadIdx.x - PRODUCERS, tr = t / 8 * 8, tc = t % 8 * 4;
        float acc[8][8] = {};
        for (int step = 0; step < steps; ++step) {
            const Stage& s = stages[step % STAGES];
            pipe.consumer_wait();
#pragma unroll
            for (int d = 0; d < BK; ++d) {
                float x[8], y[8];
#pragma unroll
                for (int i = 0; i < 8; i += 4) *reinterpret_cast<float4*>(x + i) = *reinterpret_cast<const float4*>(&s.a[d][tr + i]);
#pragma unroll
                for (int j = 0; j < 8; j += 4) *reinterpret_cast<float4*>(y + j) = *reinterpret_cast<const float4*>(&s.b[d][tc + 8 * j]);
#pragma unroll
                for (int i = 0; i < 8; ++i)
#pragma unroll
                    for (int j = 0; j < 8; ++j) acc[i][j] = __fmaf_rn(x[i], y[j], acc[i][j]);
            }
            pipe.consumer_release();
        }
        for (int i = 0; i < 8; ++i)
            for (int j = 0; j < 8; j += 4) {
                const long long r = r0 + tr + i, c = c0 + tc + 8 * j;
                if (r >= m) continue;
                if (n % 4 == 0) {
                    if (c < n) __stwb(reinterpret_cast<float4*>(out + r * n + c), *reinterpret_cast<const float4*>(&acc[i][j]));
                } else {
                    for (int e = 0; e < 4; ++e) if (c + e < n) out[r * n + c + e] = acc[i][j + e];
                }
            }
    }
}
