// What Hopper adds, in CUDA C++: tensor copies, barriers in memory, wgmma, and clusters.

#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda/ptx>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int TILE = 64, STAGES = 2;  // 64 halves are 128 bytes, the span of the swizzle

struct alignas(1024) Stage {
    __half a[TILE][TILE], b[TILE][TILE];
};

// K-major with the 128-byte swizzle: groups of 8 rows lie 1024 bytes apart.
__device__ unsigned long long descriptor(const __half* tile) {
    const unsigned long long address = __cvta_generic_to_shared(tile);
    return (address & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ void multiply(float (&d)[32], unsigned long long a, unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b));
}

// c = a b^T for a [m, k], b [n, k] and c [m, n], row-major: one thread copies what a warpgroup multiplies.
__global__ void __launch_bounds__(160) gemm(
    const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c, int n, int k) {
    extern __shared__ char memory[];
    Stage* stage = reinterpret_cast<Stage*>((reinterpret_cast<unsigned long long>(memory) + 1023) & ~1023ull);
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            ptx::mbarrier_init(&full[s], 1);
            ptx::mbarrier_init(&empty[s], 128);
        }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE, steps = (k + TILE - 1) / TILE;
    if (threadIdx.x == 128) {
        for (int i = 0; i < steps; ++i) {
            const int s = i % STAGES, at_a[] = {i * TILE, row}, at_b[] = {i * TILE, column};
            while (!ptx::mbarrier_try_wait_parity(&empty[s], i / STAGES % 2 ^ 1)) {}
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], sizeof(Stage));
            ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, stage[s].a, &a, at_a, &full[s]);
            ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, stage[s].b, &b, at_b, &full[s]);
        }
    } else if (threadIdx.x < 128) {
        float d[32] = {};
        for (int i = 0; i < steps; ++i) {
            const int s = i % STAGES;
            while (!ptx::mbarrier_try_wait_parity(&full[s], i / STAGES % 2)) {}
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            for (int part = 0; part < TILE; part += 16) {
                multiply(d, descriptor(&stage[s].a[0][part]), descriptor(&stage[s].b[0][part]));
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            ptx::mbarrier_arrive(&empty[s]);
        }
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (int r = 0; r < 32; ++r) {
            const int y = row + 16 * warp + lane / 4 + r / 2 % 2 * 8, x = column + r / 4 * 8 + lane % 4 * 2 + r % 2;
            c[(long long)y * n + x] = d[r];
        }
    }
}

#if __CUDA_ARCH__ >= 900  // NVRTC knows no clusters before

// out[i] = x[j]: every block of a cluster reads what the block after it has in its shared memory.
__device__ void rotate(const int* x, int* out) {
    extern __shared__ int mine[];
    const cg::cluster_group cluster = cg::this_cluster();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    mine[threadIdx.x] = x[i];
    cluster.sync();
    out[i] = cluster.map_shared_rank(mine, (cluster.block_rank() + 1) % cluster.num_blocks())[threadIdx.x];
    cluster.sync();  // no block leaves while another one reads
}

__global__ void rotate_any(const int* x, int* out) { rotate(x, out); }
__global__ void __cluster_dims__(4) rotate_four(const int* x, int* out) { rotate(x, out); }

#endif
