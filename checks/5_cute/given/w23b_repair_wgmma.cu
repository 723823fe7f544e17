// Four kernels that compute out = a @ b^T in one warp group. Each is broken. a and b are 64 x k in float16,
// out is 64 x 64 in float32, and k is a multiple of 64.

#include <cuda_fp16.h>
#include <cuda/ptx>

namespace ptx = cuda::ptx;

constexpr int TILE = 64;  // 64 halves are 128 bytes, the span of the swizzle
constexpr int THREADS = 128;

// A K-major tile with the 128-byte swizzle. Groups of 8 rows are 1024 bytes apart.
__device__ unsigned long long descriptor(const __half* tile) {
    const unsigned long long address = __cvta_generic_to_shared(tile);
    return (address & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

__device__ void wgmma(float (&d)[32], unsigned long long a, unsigned long long b) {
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

__device__ void multiply_tiles(float (&d)[32], const __half* a, const __half* b) {
    for (int part = 0; part < TILE; part += 16) wgmma(d, descriptor(a + part), descriptor(b + part));
}

// Copy 64 columns of a matrix with k columns to a tile: chunk c of row r goes to chunk c ^ (r mod 8).
__device__ void load_tile(__half* tile, const __half* matrix, int k) {
    for (int i = threadIdx.x; i < TILE * 8; i += THREADS) {
        const int row = i / 8, chunk = i % 8;
        *(int4*)(tile + row * TILE + (chunk ^ row % 8) * 8) = *(const int4*)(matrix + row * k + chunk * 8);
    }
}

__device__ void store_result(float* out, const float (&d)[32]) {
    const int lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32;
    for (int r = 0; r < 32; ++r) {
        const int row = 16 * warp_id + lane_id / 4 + r / 2 % 2 * 8, col = r / 4 * 8 + lane_id % 4 * 2 + r % 2;
        out[row * TILE + col] = d[r];
    }
}

// ---- proxy ----

// One stage each for a and b, and a wait for every k-tile.
__global__ void proxy(const __half* a, const __half* b, float* out, int k) {
    __shared__ alignas(1024) __half smem_a[TILE * TILE], smem_b[TILE * TILE];
    float acc[32] = {};
    for (int k0 = 0; k0 < k; k0 += TILE) {
        load_tile(smem_a, a + k0, k);
        load_tile(smem_b, b + k0, k);
        __syncthreads();
        wgmma_fence();
        multiply_tiles(acc, smem_a, smem_b);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();
    }
    store_result(out, acc);
}

// ---- swizzle ----

// Like proxy, but the next k-tile waits in registers while this one is multiplied.
__global__ void swizzle(const __half* a, const __half* b, float* out, int k) {
    __shared__ alignas(1024) __half smem_a[TILE * TILE], smem_b[TILE * TILE];
    float acc[32] = {};
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;  // position of the first of four vectors, 16 rows apart
    for (int k0 = 0; k0 < k; k0 += TILE) {
        int4 next_a[4], next_b[4];
        for (int i = 0; i < 4; ++i) {
            next_a[i] = *(const int4*)(a + (row + 16 * i) * k + k0 + chunk * 8);
            next_b[i] = *(const int4*)(b + (row + 16 * i) * k + k0 + chunk * 8);
        }
        wgmma_wait<0>();
        __syncthreads();
        for (int i = 0; i < 4; ++i) {
            const int dst = (row + 16 * i) * TILE + (chunk ^ row % 4) * 8;
            *(int4*)(smem_a + dst) = next_a[i];
            *(int4*)(smem_b + dst) = next_b[i];
        }
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        wgmma_fence();
        multiply_tiles(acc, smem_a, smem_b);
        wgmma_commit();
    }
    wgmma_wait<0>();
    store_result(out, acc);
}

// ---- refill ----

// Two stages: the next k-tile is loaded while the tensor cores multiply.
__global__ void refill(const __half* a, const __half* b, float* out, int k) {
    __shared__ alignas(1024) __half smem_a[2][TILE * TILE], smem_b[2][TILE * TILE];
    float acc[32] = {};
    load_tile(smem_a[0], a, k);
    load_tile(smem_b[0], b, k);
    for (int tile = 0; tile < k / TILE; ++tile) {
        const int stage = tile % 2;
        ptx::fence_proxy_async(ptx::space_shared);
        wgmma_wait<1>();
        __syncthreads();
        wgmma_fence();
        multiply_tiles(acc, smem_a[stage], smem_b[stage]);
        wgmma_commit();
        if ((tile + 1) * TILE < k) {
            load_tile(smem_a[stage ^ 1], a + (tile + 1) * TILE, k);
            load_tile(smem_b[stage ^ 1], b + (tile + 1) * TILE, k);
        }
    }
    wgmma_wait<0>();
    store_result(out, acc);
}

// ---- promote ----

// Like proxy, but each k-tile has its own accumulators, which are added to the result in float32.
__global__ void promote(const __half* a, const __half* b, float* out, int k) {
    __shared__ alignas(1024) __half smem_a[TILE * TILE], smem_b[TILE * TILE];
    float acc[32] = {};
    for (int k0 = 0; k0 < k; k0 += TILE) {
        float part[32] = {};
        load_tile(smem_a, a + k0, k);
        load_tile(smem_b, b + k0, k);
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        wgmma_fence();
        multiply_tiles(part, smem_a, smem_b);
        wgmma_commit();
        for (int i = 0; i < 32; ++i) acc[i] += part[i];
        wgmma_wait<0>();
        __syncthreads();
    }
    store_result(out, acc);
}
