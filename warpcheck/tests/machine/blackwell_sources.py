"""Correct kernels for Blackwell in CUDA C++ with inline PTX. Each mode other than 0 removes or breaks one thing.

``blackwell_mutants`` refers to lines by the comments at their ends.
"""

from __future__ import annotations

__all__ = ["HEAD", "KERNELS"]

HEAD = r"""
#include <cuda_fp16.h>
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;
__device__ u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ u64 matrix(const void* p, u32 lead, u32 stride) {
    return (u64)(address(p) >> 4) | (u64)(lead >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)1 << 46;
}
#define DO(text, ...) asm volatile(text ";" :: __VA_ARGS__ : "memory")
#define ALLOC(p, n) DO("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1", "r"(address(p)), "r"(n))
#define DEALLOC(t, n) DO("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1", "r"(t), "r"(n))
#define RELINQUISH() asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory")
#define BEFORE() asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory")
#define AFTER() asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory")
#define PROXY() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define INIT(b, n) DO("mbarrier.init.shared::cta.b64 [%0], %1", "r"(address(b)), "r"(n))
#define ARRIVE(b) DO("mbarrier.arrive.shared::cta.b64 _, [%0]", "r"(address(b)))
#define WAIT(b, p) \
    DO("{.reg .pred q; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 q, [%0], %1; @!q bra AGAIN;}", \
       "r"(address(b)), "r"(p))
#define MULTIPLY(d, a, b, i, keeps) \
    DO("{.reg .pred q; setp.ne.u32 q, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, q;}", \
       "r"(d), "l"(a), "l"(b), "r"(i), "r"((u32)(keeps)))
#define MULTIPLY_TENSOR(d, a, b, i, keeps) \
    DO("{.reg .pred q; setp.ne.u32 q, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, q;}", \
       "r"(d), "r"(a), "l"(b), "r"(i), "r"((u32)(keeps)))
#define MULTIPLY_SCALED(d, a, b, i, sa, sb, keeps) \
    DO("{.reg .pred q; setp.ne.u32 q, %6, 0;" \
       "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%0], %1, %2, %3, [%4], [%5], q;}", \
       "r"(d), "l"(a), "l"(b), "r"(i), "r"(sa), "r"(sb), "r"((u32)(keeps)))
#define COPY_SCALES(t, s) DO("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1", "r"(t), "l"(s))
#define COPY_ROWS(t, s) DO("tcgen05.cp.cta_group::1.4x256b [%0], %1", "r"(t), "l"(s))
#define SHIFT(t) DO("tcgen05.shift.cta_group::1.down [%0]", "r"(t))
#define COMMIT(b) DO("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0]", "r"(address(b)))
#define LOAD(r, t) asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];" \
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(t))
#define STORE(t, r) DO("tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {%1, %2, %3, %4}", \
    "r"(t), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]))
#define WAIT_LOAD() asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory")
#define WAIT_STORE() asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory")
#define SHAPE(m, n) (1u << 4 | (n) / 8 << 17 | (m) / 16 << 24)
__device__ int place(int row, int k, int rows) { return k / 8 * rows * 8 + row * 8 + k % 8; }
"""

KERNELS = {
    # c[128, 16] = a[128, 32] b[16, 32]^T, in two passes of k = 16 through one buffer. Warps 0 to 3 fill it and store
    # the result, warp 4 multiplies.
    "gemm": r"""
extern "C" __global__ void gemm(const half* a, const half* b, float* c, int mode) {
    __shared__ alignas(128) half smem_a[128 * 16], smem_b[16 * 16];
    __shared__ u64 done[3], full[1], issued[1];
    __shared__ u32 base, second;
    int tid = threadIdx.x, warp_id = tid / 32;
    int columns = mode == 8 ? 48 : mode == 7 ? 512 : 32;
    if (warp_id == 4) {
        ALLOC(&base, columns);  // allocates
        if (mode == 7) ALLOC(&second, 32);  // allocates more
        RELINQUISH();
        if (mode == 17) ALLOC(&second, 32);  // allocates late
    }
    if (tid == 0) {
        INIT(&done[0], mode == 19 ? 2 : 1);  // init
        if (mode != 30) INIT(&done[1], 1);
        INIT(full, 128);
        INIT(issued, 1);
    }
    BEFORE();
    if (mode != 33) __syncthreads();
    AFTER();
    u32 d = base;  // reads the address
    for (int pass = 0; pass < 2; ++pass) {
        if (warp_id < 4) {
            if (pass == 1) WAIT(mode == 3 ? issued : &done[0], 0);  // waits for room
            for (int k = 0; k < 16; ++k) smem_a[place(tid, k, 128)] = a[tid * 32 + pass * 16 + k];  // fills
            if (tid < 16)
                for (int k = 0; k < 16; ++k) smem_b[place(tid, k, 16)] = b[tid * 32 + pass * 16 + k];
            if (mode != 13) PROXY();
            ARRIVE(full);
        } else if (tid == 128) {
            if (mode != 18) WAIT(full, pass);
            u64 da = matrix(smem_a, 2048, 128), db = matrix(smem_b, 256, 128);
            if (mode == 14) da &= ~((u64)1 << 46);
            u32 shape = mode == 15 ? SHAPE(96, 16) : SHAPE(128, 16);
            if (mode == 28) shape |= 2u << 7;
            MULTIPLY(d, da, db, shape, mode == 16 || pass);  // multiplies
            ARRIVE(issued);
            if ((mode != 21 && mode != 32) || pass == 0) COMMIT(&done[mode == 31 ? 2 : pass]);  // commits
            if (mode == 20) COMMIT(&done[1]);  // commits twice
        }
    }
    if (mode == 21 && tid == 129) COMMIT(&done[1]);  // commits elsewhere
    if (mode == 32 && warp_id == 4) COMMIT(&done[1]);  // commits in all lanes
    if (warp_id < 4) {
        if (mode != 1) WAIT(&done[1], 0);  // waits for the result
        if (mode != 2) AFTER();
        u32 r[4];
        u32 mine = d + (mode == 5 ? 0 : warp_id * 32 << 16) + (mode == 10 ? 32 : 0);
        if (mode == 22 && warp_id == 1) mine += 8 << 16;
        for (int n = 0; n < 16; n += 4) {
            if (mode != 29 || tid % 2) LOAD(r, mine + n);  // loads
            if (mode != 12) WAIT_LOAD();
            for (int j = 0; j < 4; ++j) c[tid * 16 + n + j] = __uint_as_float(r[j]);
        }
        BEFORE();
    }
    if (mode != 11) __syncthreads();
    if (warp_id == 4 && mode != 4) {
        AFTER();
        DEALLOC(d, mode == 9 ? 64 : columns);  // frees
        if (mode == 6) DEALLOC(d, columns);  // frees again
    }
}
""",
    # c[128, 16] = (2 a)[128, 16] b[16, 16]^T, twice: A is doubled in registers and stored to tensor memory.
    "chain": r"""
extern "C" __global__ void chain(const half* a, const half* b, float* c, int mode) {
    __shared__ alignas(128) half smem_b[64 * 16];
    __shared__ u64 done[1];
    __shared__ u32 base;
    int tid = threadIdx.x, warp_id = tid / 32;
    if (warp_id == 0) ALLOC(&base, 64);
    if (tid == 0) INIT(done, 1);
    if (tid < 64)
        for (int k = 0; k < 16; ++k) smem_b[place(tid, k, 64)] = b[tid % 16 * 16 + k];
    PROXY();
    BEFORE();
    __syncthreads();
    AFTER();
    u32 d = base, factor = base + 32, quarter = warp_id * 32 << 16;
    u64 factor_b = matrix(smem_b, 1024, 128);
    for (int pass = 0; pass < 2; ++pass) {
        for (int half_row = 0; half_row < 2; ++half_row) {
            u32 words[4];
            for (int j = 0; j < 4; ++j) {
                __half2 pair = *(const __half2*)(a + tid * 16 + half_row * 8 + 2 * j);
                pair = __hadd2(pair, pair);
                words[j] = *(u32*)&pair;
            }
            STORE(factor + quarter + 4 * half_row, words);  // stores
        }
        if (mode != 1) WAIT_STORE();
        if (mode != 2) BEFORE();
        if (mode != 3) __syncthreads();
        if (tid == 0) {
            if (mode != 4) AFTER();
            MULTIPLY_TENSOR(d, factor, factor_b, SHAPE(128, 16), 0);  // multiplies
            if (mode == 8) MULTIPLY(d, factor_b, factor_b, SHAPE(64, 16), 0);  // multiplies otherwise
            if (mode == 9) MULTIPLY_TENSOR(factor, d, factor_b, SHAPE(128, 16), 0);  // multiplies back
            COMMIT(done);
        }
        if (mode == 5) {
            u32 zeros[4] = {};
            STORE(factor + quarter, zeros);  // overwrites
        }
        if (mode == 6) {
            u32 zeros[4] = {};
            STORE(d + quarter, zeros);  // clears
        }
        WAIT(done, pass);
        AFTER();
        u32 r[4];
        for (int n = 0; n < 16; n += 4) {
            LOAD(r, d + quarter + n);  // loads
            if (mode != 7) WAIT_LOAD();
            for (int j = 0; j < 4; ++j) c[tid * 16 + n + j] = __uint_as_float(r[j]);
        }
        if (mode == 10 && warp_id == 0) BEFORE();
        if (mode != 10) BEFORE();
        if (mode != 11) __syncthreads();
        AFTER();
    }
    if (mode == 11) __syncthreads();
    if (warp_id == 0) DEALLOC(d, 64);  // frees
}
""",
    # A convolution along a line: c[32 q + r, n] = sum over three taps of x[34 q + r + tap] b[tap, n]^T, for q < 4 and
    # r < 32. Lane 32 q + r of A begins with pixel 34 q + r. A shift brings the next pixel, a copy that of lane 31.
    "slide": r"""
extern "C" __global__ void slide(const half* x, const half* b, float* c, int mode) {
    __shared__ alignas(128) half smem_b[3][16 * 16], halo[2][8 * 16];
    __shared__ alignas(128) half other_rows[128 * 16];
    __shared__ u64 done[1];
    __shared__ u32 base;
    int tid = threadIdx.x, warp_id = tid / 32, lane_id = tid % 32;
    if (warp_id == 0) ALLOC(&base, 32);
    if (tid == 0) INIT(done, 1);
    if (tid < 48)
        for (int k = 0; k < 16; ++k) smem_b[tid / 16][place(tid % 16, k, 16)] = b[tid * 16 + k];
    if (tid < 8)
        for (int k = 0; k < 16; ++k) halo[tid / 4][place(tid % 4, k, 8)] = x[(tid % 4 * 34 + 32 + tid / 4) * 16 + k];
    for (int k = 0; k < 16; ++k) other_rows[place(tid, k, 128)] = __float2half(0);
    PROXY();
    BEFORE();
    __syncthreads();
    AFTER();
    u32 d = base, pixels = base + 16, quarter = warp_id * 32 << 16;
    const u32* mine = (const u32*)(x + (warp_id * 34 + lane_id) * 16);
    for (int j = 0; j < 8; j += 4) STORE(pixels + quarter + j, (mine + j));  // stores
    if (mode != 8) WAIT_STORE();
    BEFORE();
    __syncthreads();
    if (mode != 9) AFTER();
    if (tid == 0) {
        for (int tap = 0; tap < 3; ++tap) {
            if (tap > 0) {
                if (mode == 5) COPY_ROWS(pixels + (31u << 16), matrix(halo[tap - 1], 128, 128));  // copies early
                for (u32 q = 0; q < 4; ++q) {
                    u32 target = pixels + (q * 32 << 16) + (mode == 1 ? 16u << 16 : mode == 7 ? 16 : 0);
                    if (mode != 2) SHIFT(target);  // shifts
                    if (mode == 3) SHIFT(target);  // shifts again
                    if (mode == 10) DO("tcgen05.shift.cta_group::2.down [%0]", "r"(target));  // shifts both
                }
                u64 all = matrix(other_rows, 2048, 128);
                if (mode == 4) DO("tcgen05.cp.cta_group::1.128x256b [%0], %1", "r"(pixels), "l"(all));  // copies all
                COPY_ROWS(pixels + (31u << 16), matrix(halo[tap - 1], 128, 128));  // copies
            }
            MULTIPLY_TENSOR(d, pixels, matrix(smem_b[tap], 256, 128), SHAPE(128, 16), tap);  // multiplies
        }
        COMMIT(done);
    }
    if (mode == 2) {
        __syncthreads();
        AFTER();
        if (tid == 32) SHIFT(pixels);  // shifts elsewhere
    }
    u32 r[4];
    if (mode == 6) {
        LOAD(r, pixels + quarter);  // peeks
        WAIT_LOAD();
    }
    WAIT(done, 0);
    AFTER();
    for (int n = 0; n < 16; n += 4) {
        LOAD(r, d + quarter + n);
        WAIT_LOAD();
        for (int j = 0; j < 4; ++j) c[tid * 16 + n + j] = __uint_as_float(r[j]);
    }
    BEFORE();
    __syncthreads();
    if (warp_id == 0) DEALLOC(d, 32);
}
""",
    # c[128, 16] = a[128, 16] b[16, 16]^T. Warp 0 loads A and B, already in the layout of the descriptors, warp 1
    # multiplies, and warps 2 to 5 store the result where A was. A second load of A is not used.
    "reuse": r"""
#define LOAD_BYTES(to, from, n, b) \
    DO("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3]", \
       "r"(address(to)), "l"(from), "r"(n), "r"(address(b)))
#define EXPECT(b, n) DO("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1", "r"(address(b)), "r"(n))
extern "C" __global__ void reuse(const half* a, const half* b, float* c, int mode) {
    __shared__ alignas(128) half ring[2][128 * 16], smem_b[16 * 16];
    __shared__ u64 full[2], done[1];
    __shared__ u32 base;
    int tid = threadIdx.x, warp_id = tid / 32;
    if (warp_id == 0) ALLOC(&base, 32);
    if (tid == 0) {
        INIT(&full[0], 1);
        INIT(&full[1], 1);
        INIT(done, 1);
    }
    BEFORE();
    __syncthreads();
    AFTER();
    u32 d = base;
    if (tid == 0) {
        EXPECT(&full[0], 4096 + 512);
        LOAD_BYTES(ring[0], a, 4096, &full[0]);  // loads
        LOAD_BYTES(smem_b, b, 512, &full[0]);
        EXPECT(&full[1], 4096);
        LOAD_BYTES(ring[1], a, 4096, &full[1]);  // loads ahead
    } else if (tid == 32) {
        WAIT(&full[0], 0);
        if (mode != 2) WAIT(&full[1], 0);
        MULTIPLY(d, matrix(ring[0], 2048, 128), matrix(smem_b, 256, 128), SHAPE(128, 16), 0);  // multiplies
        if (mode != 3) COMMIT(done);
        else ARRIVE(done);
    } else if (warp_id >= 2) {
        if (mode != 1) WAIT(done, 0);
        if (mode == 1) WAIT(&full[0], 0);
        if (mode == 1) WAIT(&full[1], 0);
        AFTER();
        float* staged = (float*)ring;
        int row = warp_id % 4 * 32 + tid % 32;
        for (int n = 0; n < 16; n += 4) {
            u32 r[4] = {};
            if (mode != 1 && mode != 3) LOAD(r, d + (warp_id % 4 * 32 << 16) + n);
            WAIT_LOAD();
            for (int j = 0; j < 4; ++j) staged[row * 16 + n + j] = __uint_as_float(r[j]);  // stages
        }
        BEFORE();
        for (int n = 0; n < 16; ++n) c[row * 16 + n] = staged[row * 16 + n];
    }
    __syncthreads();
    AFTER();
    if (warp_id == 0) DEALLOC(d, 32);
}
""",
    # c[rows, 32] = a[rows, 16] b[32, 16]^T by a pair of blocks: each has half of the rows of A, and of B. Rank 0
    # multiplies.
    "pair": r"""
#define SYNC() asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory")
extern "C" __global__ void pair(const half* a, const half* b, float* c, int rows, int mode) {
    __shared__ alignas(128) half smem_a[128 * 16], smem_b[16 * 16];
    __shared__ u64 done[1];
    __shared__ u32 base;
    int tid = threadIdx.x, warp_id = tid / 32, rank = blockIdx.x % 2, own = rows / 2;
    if (warp_id == 0) {
        u32 target = address(&base);
        DO("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 32", "r"(target));  // allocates both
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
    }
    if (tid == 0) INIT(done, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (tid < own)
        for (int k = 0; k < 16; ++k) smem_a[place(tid, k, own)] = a[(rank * own + tid) * 16 + k];  // fills
    if (tid < 16)
        for (int k = 0; k < 16; ++k) smem_b[place(tid, k, 16)] = b[(rank * 16 + tid) * 16 + k];
    PROXY();
    BEFORE();
    if (mode != 2) SYNC(); else __syncthreads();
    AFTER();
    u32 d = base;
    if (rank == 0 && tid == 0) {
        u64 da = matrix(smem_a, own * 16, 128), db = matrix(smem_b, 256, 128);
        u32 shape = SHAPE(rows, 32);
        DO("{.reg .pred q; mov.pred q, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, q;}",  // multiplies
           "r"(d), "l"(da), "l"(db), "r"(shape));
        u16 both = mode == 1 ? 1 : 3;
        DO("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1",
           "r"(address(done)), "h"(both));
    }
    if (mode == 7 && rank == 1) {
        if (warp_id == 0)
            DO("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1", "r"(d), "r"(32));  // frees early
        return;
    }
    if (mode == 5) SYNC();
    if (mode == 5 && rank == 1) smem_b[tid] = 0;  // overwrites
    if (mode != 3 || rank == 0) WAIT(done, 0);  // waits
    if (mode != 4 || rank == 0) AFTER();
    u32 r[4];
    int row = rank * own + tid % own, first = tid / own * 16;
    for (int n = 0; n < (rows == 256 ? 32 : 16); n += 4) {
        LOAD(r, d + (warp_id * 32 << 16) + n);  // loads
        WAIT_LOAD();
        for (int j = 0; j < 4; ++j) c[row * 32 + first + n + j] = __uint_as_float(r[j]);
    }
    BEFORE();
    SYNC();
    if (warp_id == 0 && mode != 6)
        DO("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1", "r"(d), "r"(32));
}
""",
    # Each block of a pair stores 128 rows of x to tensor memory. Rank 0 shifts the rows of both, and each block stores
    # its own to y.
    "slide_pair": r"""
#define SYNC() asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory")
extern "C" __global__ void slide_pair(const u32* x, u32* y, int mode) {
    __shared__ u64 done[1];
    __shared__ u32 base;
    int tid = threadIdx.x, warp_id = tid / 32, rank = blockIdx.x % 2;
    if (warp_id == 0)
        DO("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 32", "r"(address(&base)));
    if (tid == 0) INIT(done, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
    AFTER();
    u32 rows = base, quarter = warp_id * 32 << 16;
    const u32* mine = x + (rank * 128 + tid) * 8;
    for (int j = 0; j < 8; j += 4) STORE(rows + quarter + j, (mine + j));
    WAIT_STORE();
    BEFORE();
    if (mode != 1) SYNC(); else __syncthreads();
    AFTER();
    if (rank == 0 && tid == 0) {
        for (u32 q = 0; q < 4; ++q) DO("tcgen05.shift.cta_group::2.down [%0]", "r"(rows + (q * 32 << 16)));  // shifts
        DO("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1",
           "r"(address(done)), "h"((u16)3));
    }
    if (mode == 1 || mode == 2) SYNC();
    if (mode != 2 || rank == 0) WAIT(done, 0);
    AFTER();
    for (int j = 0; j < 8; j += 4) {
        u32 r[4];
        LOAD(r, rows + quarter + j);  // loads
        WAIT_LOAD();
        for (int k = 0; k < 4; ++k) y[(rank * 128 + tid) * 8 + j + k] = r[k];
    }
    BEFORE();
    SYNC();
    if (warp_id == 0) DO("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1", "r"(rows), "r"(32));
}
""",
    # c[128, 16] = a[128, 128] b[16, 128]^T of e2m1 numbers with ue4m3 scale factors for 16 of them, in two passes of
    # k = 64 through one buffer. A row has 64 bytes of numbers, and 8 scale factors.
    "scaled": r"""
extern "C" __global__ void scaled(const u32* a, const u32* b, const u32* scale_a, const u32* scale_b, float* c,
                                  int mode) {
    __shared__ alignas(128) u32 smem_a[128 * 8], smem_b[16 * 8], smem_scale_a[128], smem_scale_b[128];
    __shared__ u64 done[2], full[1], issued[1];
    __shared__ u32 base;
    int tid = threadIdx.x, warp_id = tid / 32;
    if (warp_id == 4) ALLOC(&base, 32);
    if (tid == 0) {
        INIT(&done[0], 1);
        INIT(&done[1], 1);
        INIT(full, 128);
        INIT(issued, 1);
    }
    BEFORE();
    __syncthreads();
    AFTER();
    u32 d = base, factors_a = d + 16, factors_b = d + 20;
    for (int pass = 0; pass < 2; ++pass) {
        if (warp_id < 4) {
            if (pass == 1) WAIT(mode == 8 ? issued : &done[0], 0);
            // Row r has words 4 r to 4 r + 3 of each half; its scale factors have word 4 (r % 32) + r / 32.
            if (mode != 8 || pass == 0)
                for (int k = 0; k < 8; ++k) {
                    smem_a[k / 4 * 512 + tid * 4 + k % 4] = a[tid * 16 + pass * 8 + k];
                    if (tid < 16) smem_b[k / 4 * 64 + tid * 4 + k % 4] = b[tid * 16 + pass * 8 + k];
                }
            smem_scale_a[tid % 32 * 4 + warp_id] = scale_a[tid * 2 + pass];  // fills scale factors
            smem_scale_b[tid % 32 * 4 + warp_id] = tid < 16 ? scale_b[tid * 2 + pass] : 0;
            if (mode != 3) PROXY();
            ARRIVE(full);
        } else if (tid == 128) {
            if (mode != 2) WAIT(full, pass);
            u64 da = matrix(smem_a, 2048, 128), db = matrix(smem_b, 256, 128);
            u64 sa = matrix(smem_scale_a, 0, 128), sb = matrix(smem_scale_b, 0, 128);
            if (mode == 10) sa &= ~((u64)1 << 46);
            u32 target = factors_a + (mode == 9 ? 32 : 0) + (mode == 14 ? 32 << 16 : 0);
            COPY_SCALES(target, sa);  // copies
            if (mode != 11) COPY_SCALES(factors_b, sb);
            u32 shape = (mode == 13 ? SHAPE(64, 16) : SHAPE(128, 16)) & ~(1u << 4) | 1u << 7 | 1u << 10;
            if (mode == 4) shape |= 1u << 29;
            if (mode == 5)
                DO("{.reg .pred q; setp.ne.u32 q, %3, %3; tcgen05.mma.cta_group::1.kind::mxf4.block_scale"  // mistypes
                   " [%0], %1, %2, %3, [%4], [%5], q;}",
                   "r"(d), "l"(da), "l"(db), "r"(shape), "r"(factors_a), "r"(factors_b));
            if (mode != 1) MULTIPLY_SCALED(d, da, db, shape, factors_a, factors_b, pass);  // multiplies
            COMMIT(&done[pass]);
            ARRIVE(issued);
        }
        if (mode == 1 && tid == 129) {
            WAIT(full, pass);
            u64 da = matrix(smem_a, 2048, 128), db = matrix(smem_b, 256, 128);
            u32 shape = SHAPE(128, 16) & ~(1u << 4) | 1u << 7 | 1u << 10;
            MULTIPLY_SCALED(d, da, db, shape, factors_a, factors_b, pass);  // multiplies elsewhere
        }
        if (mode == 12 && tid == 129) {
            WAIT(full, pass);
            COPY_SCALES(factors_a, matrix(smem_scale_a, 0, 128));  // copies elsewhere
        }
        if ((mode == 6 || mode == 7) && warp_id == 4) {
            u32 r[4] = {};
            if (mode == 6) LOAD(r, factors_a);  // peeks
            if (mode == 7) STORE(factors_a, r);  // clears scale factors
        }
    }
    if (warp_id < 4) {
        WAIT(&done[1], 0);
        AFTER();
        u32 r[4];
        for (int n = 0; n < 16; n += 4) {
            LOAD(r, d + (warp_id * 32 << 16) + n);
            WAIT_LOAD();
            for (int j = 0; j < 4; ++j) c[tid * 16 + n + j] = __uint_as_float(r[j]);
        }
        BEFORE();
    }
    __syncthreads();
    if (warp_id == 4) {
        AFTER();
        DEALLOC(d, 32);
    }
}
""",
    # Each block of a pair loads 32 rows of 32 bytes of x; the even one waits for both loads at its own mbarrier, and
    # stores what it has.
    "loads": r"""
struct alignas(64) Map { u64 opaque[16]; };
#define SYNC() asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory")
extern "C" __global__ void loads(const __grid_constant__ Map x, u32* c, int mode) {
    __shared__ alignas(128) u32 tile[256];
    __shared__ u64 full[1];
    int tid = threadIdx.x, rank = blockIdx.x % 2;
    if (tid == 0) INIT(full, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    SYNC();
    if (mode == 2 && rank == 1) return;
    if (tid == 0) {
        u32 leader;  // the mbarrier of the even block, at the same place
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(leader) : "r"(address(full)), "r"(mode == 3 ? rank : 0));
        u32 bytes = mode == 1 ? 1024 : 2048, own = address(full);
        if (rank == 0) DO("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1", "r"(own), "r"(bytes));  // promises
        u32 target;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(target) : "r"(address(tile)), "r"(rank));
        DO("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes"  // fetches
           " [%0], [%1, {%2, %3}], [%4];", "r"(target), "l"(&x), "r"(0), "r"(32 * rank), "r"(leader));
    }
    if (rank == 0) {
        WAIT(full, 0);  // waits for both
        for (int i = tid; i < 256; i += blockDim.x) c[i] = tile[i];  // stores
    }
    SYNC();  // leaves
}
""",
}
