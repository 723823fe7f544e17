"""Six kernels for Hopper, which are correct in mode 0 and have one fault in each other mode.

``CUT(n)`` guards a statement that mode n omits, and ``IS(n)`` a statement that mode n adds. One compilation serves all
modes.
"""

from __future__ import annotations

__all__ = ["HEAD", "KERNELS"]

HEAD = """
struct alignas(64) Map { unsigned long long opaque[16]; };
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern __shared__ __align__(1024) unsigned char tile[];
#define IS(n) (mode == n)
#define CUT(n) if (mode != n)
#define DO(text) asm volatile(text ";" ::: "memory")
#define INIT(bar, n) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(bar), "r"(n) : "memory")
#define ARRIVE(bar) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(bar) : "memory")
#define EXPECT(bar, n) \\
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(bar), "r"(n) : "memory")
#define EXPECT_MORE(bar, n) asm volatile("mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], %1;" \\
  :: "r"(bar), "r"(n) : "memory")
#define WAIT(bar, parity) \\
  asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra AGAIN; }" \\
               :: "r"(bar), "r"(parity) : "memory")
#define FENCE DO("fence.proxy.async.shared::cta")
#define COMMIT DO("cp.async.bulk.commit_group")
#define READ DO("cp.async.bulk.wait_group.read 0")
#define BOX "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
#define LOAD(to, map, x, y, bar) asm volatile(BOX " [%0], [%1, {%2, %3}], [%4];" \\
  :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory")
#define STORE(map, x, y, from) \\
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" \\
               :: "l"(map), "r"(x), "r"(y), "r"(from) : "memory")
#define MULTICAST(to, map, x, y, bar) asm volatile(BOX ".multicast::cluster [%0], [%1, {%2, %3}], [%4], 3;" \\
  :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory")
#define ADD(to, from, n) asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" \\
  :: "l"(to), "r"(from), "r"(n) : "memory")
#define STMATRIX(to, low, high) asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" \\
  :: "r"(to), "r"(low), "r"(high) : "memory")
#define ARRIVE_THERE(bar) \\
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(bar) : "memory")
#define WGMMA(d, a, b) asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 " \\
  "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;" \\
  : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b) : "memory")
#define MAPA(there, here, rank) \\
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank))
#define MEET DO("barrier.cluster.arrive; barrier.cluster.wait")
__device__ unsigned rank_of_block() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ unsigned long long descriptor(unsigned address, int lead, int stride, unsigned long long swizzle) {
  return (address & 0x3ffff) >> 4 | (unsigned long long)lead << 12 | (unsigned long long)stride << 28 | swizzle << 62;
}
"""

RING = """
extern "C" __global__ void ring(const __grid_constant__ Map map, float* out, int mode) {
  __shared__ __align__(8) unsigned long long full[2], empty[2];
  float* values = reinterpret_cast<float*>(tile);
  const int t = threadIdx.x;
  if (t == 0)
    for (int s = 0; s < 2; ++s) {
      INIT(at(&full[s]), 1);                                               // init
      INIT(at(&empty[s]), IS(9) ? 32 : 64);
    }
  CUT(8) __syncthreads();
  if (t < 32) {
    if (t == 0)
      #pragma unroll 1
      for (int i = 0; i < 5; ++i) {
        const unsigned s = i % 2, bar = at(&full[s]), to = at(tile) + 256 * s + (IS(12) ? 64 : 0);
        CUT(3) WAIT(at(&empty[s]), i / 2 % 2 ^ 1);                         // waits for room
        if (IS(6)) EXPECT_MORE(bar, 256);
        if (IS(13)) { EXPECT_MORE(bar, 1000000); EXPECT_MORE(bar, 100000); } // far too many
        if (IS(11)) ARRIVE(bar);
        else EXPECT(bar, IS(4) ? 128 : IS(5) ? 384 : 256);                 // expects
        LOAD(to, &map, 0, 2 * i, bar);                                     // fills
        if (IS(10)) LOAD(to, &map, 0, 2 * i, bar);                         // fills again
      }
  } else {
    #pragma unroll 1
    for (int i = 0; i < 5; ++i) {
      const unsigned s = i % 2;
      CUT(1) WAIT(at(&full[s]), IS(2) ? 0 : i / 2 % 2);                    // waits for data
      if (IS(7)) ARRIVE(at(&empty[s]));
      const float value = values[64 * s + t - 32];                         // reads
      CUT(7) ARRIVE(at(&empty[s]));                                        // releases
      out[64 * i + t - 32] = value;
    }
  }
}"""

GEMM = """
extern "C" __global__ void __maxnreg__(64) gemm(const __grid_constant__ Map a, const __grid_constant__ Map b,
                                                const __grid_constant__ Map c, int mode) {
  __shared__ __align__(8) unsigned long long full[2], empty[2];
  float* result = reinterpret_cast<float*>(tile + 8192);
  const int t = threadIdx.x;
  if (t == 0) {
    for (int s = 0; s < 2; ++s) { INIT(at(&full[s]), 1); INIT(at(&empty[s]), 4); }
    DO("fence.mbarrier_init.release.cluster");
  }
  __syncthreads();
  if (t >= 128) {
    CUT(12) DO("setmaxnreg.dec.sync.aligned.u32 24");
    if (t == 128)
      #pragma unroll 1
      for (int i = 0; i < 8; ++i) {
        const unsigned s = i % 2, to = at(tile) + 4096 * s;
        WAIT(at(&empty[s]), i / 2 % 2 ^ 1);                                // waits for a stage
        EXPECT(at(&full[s]), 2304);
        LOAD(to, &a, 16 * (i % 4), 64 * (i / 4), at(&full[s]));            // fills
        LOAD(to + 2048, &b, 16 * (i % 4), 0, at(&full[s]));
      }
    return;
  }
  if (IS(11)) DO("setmaxnreg.inc.sync.aligned.u32 112");                   // too many registers
  else DO("setmaxnreg.inc.sync.aligned.u32 104");                          // takes registers
  #pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    float d[4] = {};
    #pragma unroll 1
    for (int step = 4 * i; step < 4 * i + 4; ++step) {
      const unsigned s = step % 2, from = at(tile) + 4096 * s;
      CUT(1) WAIT(at(&full[s]), step / 2 % 2);
      DO("wgmma.fence.sync.aligned");
      WGMMA(d, descriptor(from, 16, 256, 3), descriptor(from + 2048, 16, 256, 3));  // multiplies
      DO("wgmma.commit_group.sync.aligned");
      if (IS(7) && t % 32 == 0) ARRIVE(at(&empty[s]));
      DO("wgmma.wait_group.sync.aligned 1");
      if (step % 4 && t % 32 == 0) CUT(7) ARRIVE(at(&empty[s ^ 1]));
    }
    CUT(6) DO("wgmma.wait_group.sync.aligned 0");
    if (t % 32 == 0) CUT(7) ARRIVE(at(&empty[1]));
    if (t == 0) CUT(8) READ;
    CUT(9) DO("bar.sync 1, 128");
    for (int r = 0; r < 4; ++r)
      result[8 * (t / 32 * 16 + t % 32 / 4 + r / 2 * 8) + t % 4 * 2 + r % 2] = d[r];  // writes the result
    CUT(2) if (t == 0 || mode != 3) FENCE;
    CUT(5) DO("bar.sync 1, 128");
    if (t == 0) {
      if (IS(4)) FENCE;                                                    // one more does no harm
      STORE(&c, 0, 64 * i, at(result));                                    // stores
      if (mode != 14 || i == 0) COMMIT;
    }
  }
  if (t == 0) CUT(13) READ;
}"""

MULTICAST = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) multicast(const __grid_constant__ Map map, float* out, int mode) {
  __shared__ __align__(8) unsigned long long full, empty;
  const float* values = reinterpret_cast<const float*>(tile);
  const unsigned t = threadIdx.x, rank = rank_of_block();
  unsigned its;
  MAPA(its, at(&empty), rank ^ 1);
  if (t == 0) {
    INIT(at(&empty), IS(1) ? 1 : 2);
    INIT(at(&full), 1);                                                    // init
    CUT(5) DO("fence.mbarrier_init.release.cluster");
  }
  if (IS(5) || IS(6)) DO("barrier.cluster.arrive.relaxed; barrier.cluster.wait");
  else CUT(3) MEET;
  #pragma unroll 1
  for (int i = 0; i < 3; ++i) {
    if (t == 0) {
      if (i) WAIT(at(&empty), (i - 1) % 2);
      EXPECT(at(&full), IS(2) ? 128 : 256);
      MULTICAST(at(tile) + 128 * rank, &map, 0, 2 * i + rank, at(&full));  // sends
    }
    __syncwarp();
    WAIT(at(&full), i % 2);                                                // waits for both
    out[192 * rank + 64 * i + t] = values[t];                              // reads
    out[192 * rank + 64 * i + 32 + t] = values[32 + t];
    __syncwarp();
    if (t == 0) {
      ARRIVE(at(&empty));
      CUT(1) ARRIVE_THERE(its);                                            // there
    }
  }
  CUT(4) MEET;
}"""

DSMEM = """
extern "C" __global__ void __cluster_dims__(4, 1, 1) dsmem(const float* x, float* out, int mode) {
  __shared__ float part[32];
  const unsigned t = threadIdx.x, rank = rank_of_block();
  part[t] = x[32 * rank + t];                                              // writes
  if (IS(3)) DO("barrier.cluster.arrive.relaxed; barrier.cluster.wait");
  else CUT(1) MEET;
  if (rank == 0) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
      unsigned place;
      float value;
      MAPA(place, at(&part[t]), i);
      asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(place) : "memory");  // reads there
      sum += value;
    }
    out[t] = sum;
  }
  CUT(2) MEET;
}"""

REDUCE = """
extern "C" __global__ void reduce(const float* x, float* out, float* first, int mode) {
  float* values = reinterpret_cast<float*>(tile);
  const int t = threadIdx.x;
  #pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    values[t] = x[64 * i + t];                                             // writes
    if (!IS(1) && !(IS(6) && i)) FENCE;
    CUT(2) __syncthreads();
    if (t == 0) {
      ADD(out, at(tile), IS(3) ? 24 : 256);                                // adds
      COMMIT;
      CUT(4) READ;
    }
    __syncthreads();
  }
  if (t == 0) {
    DO("cp.async.bulk.wait_group 0");
    if (IS(7)) FENCE;                                                      // one more does no harm
    first[0] = out[0];
  }
}"""

EPILOGUE = """
extern "C" __global__ void epilogue(const uint4* image, const __grid_constant__ Map c, int mode) {
  const int t = threadIdx.x;
  const unsigned a = at(tile), b = at(tile) + 2048, result = at(tile) + 4096;
  reinterpret_cast<uint4*>(tile)[t] = image[t];                            // writes A
  if (t < 16) reinterpret_cast<uint4*>(tile)[128 + t] = image[128 + t];
  CUT(1) FENCE;
  __syncthreads();
  float d[4] = {};
  DO("wgmma.fence.sync.aligned");
  WGMMA(d, descriptor(a, 128, 256, 0), descriptor(b, 128, 256, 0));        // multiplies
  DO("wgmma.commit_group.sync.aligned");
  if (IS(3)) reinterpret_cast<uint4*>(tile)[t] = make_uint4(0, 0, 0, 0);   // overwrites A
  CUT(2) DO("wgmma.wait_group.sync.aligned 0");
  unsigned low, high;
  asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(d[1]), "f"(d[0]));  // rounds
  asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(d[3]), "f"(d[2]));
  STMATRIX(result + 16 * (t / 32 * 16 + t % 16), low, high);               // stmatrix
  CUT(4) FENCE;
  CUT(5) __syncthreads();
  if (t == 0) {
    STORE(&c, 0, 0, result + (IS(6) ? 16 : 0));                            // stores
    COMMIT;
    READ;
  }
}"""

KERNELS = {
    "ring": RING,
    "gemm": GEMM,
    "multicast": MULTICAST,
    "dsmem": DSMEM,
    "reduce": REDUCE,
    "epilogue": EPILOGUE,
}
