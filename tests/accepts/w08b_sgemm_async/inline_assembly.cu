#define CP_ASYNC_CA4(dst, src, bytes) \
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(dst), "l"(src), "r"(bytes) : "memory")
#define CP_ASYNC_CG16(dst, src, bytes) \
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(dst), "l"(src), "r"(bytes) : "memory")
#define CP_ASYNC_COMMIT() asm volatile("cp.async.commit_group;\n" ::: "memory")
#define CP_ASYNC_WAIT(n) asm volatile("cp.async.wait_group %0;\n" ::"n"(n) : "memory")

constexpr int TILE = 128, DEPTH = 8, THREADS = 256, STAGES = 3;

constexpr int BYTES_A = DEPTH * (TILE + 4) * 4, BYTES_B = DEPTH * TILE * 4, BYTES = BYTES_A + BYTES_B;

template <bool ALIGNED>
__launch_bounds__(THREADS, 2)
__global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k) {
    extern __shared__ __align__(16) unsigned char smem[];
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(smem));
    const int t = threadIdx.x, x = t % 16, y = t / 16, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[8][8] = {};

    auto stage = [&](int step) {
        const unsigned to = base + step % STAGES * BYTES;
        const int depth = step * DEPTH;
#pragma unroll
        for (int l = 0; l < 4; ++l) {
            const int u = depth + t % 8, r = row + t / 8 + 32 * l;
            const bool in = r < m && u < k;
            CP_ASYNC_CA4(to + ((t % 8) * (TILE + 4) + t / 8 + 32 * l) * 4, in ? a + (size_t)r * k + u : a, in ? 4 : 0);
        }
        if constexpr (ALIGNED) {
            const int v = depth + t / 32, c = column + t % 32 * 4;
            const bool in = v < k && c < n;
            CP_ASYNC_CG16(to + BYTES_A + t * 16, in ? b + (size_t)v * n + c : b, in ? 16 : 0);
        } else {
#pragma unroll
            for (int l = 0; l < 4; ++l) {
                const int v = depth + t / 128 + 2 * l, c = column + t % 128;
                const bool in = v < k && c < n;
                CP_ASYNC_CA4(to + BYTES_A + ((t / 128 + 2 * l) * TILE + t % 128) * 4, in ? b + (size_t)v * n + c : b, in ? 4 : 0);
            }
        }
    };

    const int steps = (k + DEPTH - 1) / DEPTH;
    for (int step = 0; step < STAGES - 1; ++step) {
        if (step < steps) stage(step);
        CP_ASYNC_COMMIT();
    }
    for (int step = 0; step < steps; ++step) {
        CP_ASYNC_WAIT(STAGES - 2);
        __syncthreads();
        if (step + STAGES - 1 < steps) stage(step + STAGES - 1);
        CP_ASYNC_COMMIT();
        const float4(*of_a)[TILE / 4 + 1] = reinterpret_cast<const float4(*)[TILE / 4 + 1]>(smem + step % STAGES * BYTES);
        const float4(*of_b)[TILE / 4] = reinterpret_cast<const float4(*)[TILE / 4]>(smem + step % STAGES * BYTES + BYTES_A);
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            const float4 down[2] = {of_a[i][y], of_a[i][y + 16]}, across[2] = {of_b[i][x], of_b[i][x + 16]};
#pragma unroll
            for (int r = 0; r < 8; ++r) {
#pragma unroll
                for (int c = 0; c < 8; ++c) sum[r][c] += (&down[r / 4].x)[r % 4] * (&across[c / 4].x)[c % 4];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int i = row + r / 4 * 64 + 4 * y + r % 4;
        if (i >= m) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int j = column + 64 * half + 4 * x;
            const float* four = &sum[r][4 * half];
            float* to = out + (long long)i * n + j;
            if (n % 4 == 0 && j < n) {
                *(float4*)to = make_float4(four[0], four[1], four[2], four[3]);
            } else {
                for (int e = 0; e < 4 && j + e < n; ++e) to[e] = four[e];
            }
        }
    }
}
