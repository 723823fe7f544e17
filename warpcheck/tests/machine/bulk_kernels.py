"""Kernels that execute bulk copies, in CUDA C++ with inline PTX."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from machine.boxes import Words
from warpcheck import simt
from warpcheck.frontends import cuda

__all__ = ["CLUSTER", "IN_FLIGHT", "MAPS", "SUM", "TWO", "aligned_bytes", "compiled", "line_of", "run_bulk"]

FILE = "bulk.cu"

_HEAD = """
struct alignas(64) Map { unsigned long long opaque[16]; };
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(unsigned bar) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(bar) : "memory");
}
__device__ void expect(unsigned bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
__device__ void wait(unsigned bar) {
  asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra AGAIN; }"
               :: "r"(bar) : "memory");
}
__device__ void finish() {
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}
extern __shared__ __align__(1024) unsigned char tile[];
"""


def _load(rank: int) -> str:
    operands = ", ".join(f"%{2 + n}" for n in range(rank))
    coordinates = ", ".join(f'"r"(c{n})' for n in range(rank))
    return f"""
extern "C" __global__ void load{rank}(const __grid_constant__ Map map, unsigned char* out, int n, int offset,
                                      int bytes, int c0, int c1, int c2, int c3, int c4) {{
  __shared__ __align__(8) unsigned long long bar;
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = 0xEE;
  if (threadIdx.x == 0) init(at(&bar));
  __syncthreads();
  if (threadIdx.x == 0) {{
    expect(at(&bar), bytes);
    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {{{operands}}}], [%{2 + rank}];"
                 :: "r"(at(tile) + offset), "l"(&map), {coordinates}, "r"(at(&bar)) : "memory");
  }}
  wait(at(&bar));
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = tile[i];
}}"""


def _store(rank: int, reduction: str = "") -> str:
    operands = ", ".join(f"%{1 + n}" for n in range(rank))
    coordinates = ", ".join(f'"r"(c{n})' for n in range(rank))
    opcode = f"cp.{'reduce.' * bool(reduction)}async.bulk.tensor.{rank}d.global.shared::cta{reduction}.bulk_group"
    return f"""
extern "C" __global__ void store{rank}{reduction.replace(".", "_")}(
    const __grid_constant__ Map map, const unsigned char* in, int n, int offset, int lanes,
    int c0, int c1, int c2, int c3, int c4) {{
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = in[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x < lanes)
    asm volatile("{opcode} [%0, {{{operands}}}], [%{1 + rank}];"
                 :: "l"(&map), {coordinates}, "r"(at(tile) + offset) : "memory");
  finish();
}}"""


def _span(form: str) -> str:
    opcode = "cp.async.bulk.global.shared::cta.bulk_group"
    if form:
        opcode = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{form}"
    return f"""
extern "C" __global__ void span_{form.replace(".", "_")}(
    unsigned char* out, const unsigned char* in, int n, int offset, int lanes) {{
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = in[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x < lanes)
    asm volatile("{opcode} [%0], [%1], %2;" :: "l"(out), "r"(at(tile) + offset), "r"(n) : "memory");
  finish();
}}"""


_FETCH = """
extern "C" __global__ void fetch(unsigned char* out, const unsigned char* in, int n, int offset, int bar_at,
                                 int begun) {
  unsigned bar = at(tile) + 8192 + bar_at;
  if (threadIdx.x == 0 && begun) init(bar);
  __syncthreads();
  if (threadIdx.x == 0) {
    if (begun) expect(bar, n);
    asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(at(tile) + offset), "l"(in), "r"(n), "r"(bar) : "memory");
  }
  if (!begun) return;
  wait(bar);
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = tile[offset + i];
}"""

IN_FLIGHT = """
#define FETCH asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" \\
    :: "r"(at(tile)), "l"(in), "r"(at(&bar)) : "memory")
#define STORE asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256; cp.async.bulk.commit_group;" \\
    :: "l"(out), "r"(at(tile)) : "memory")
extern "C" __global__ void flight(float* out, const float* in, int mode) {
  __shared__ __align__(8) unsigned long long bar;
  float* values = reinterpret_cast<float*>(tile);
  int t = threadIdx.x;
  if (t == 0) init(at(&bar));
  __syncthreads();
  if (mode < 10) {
    if (t == 0) {
      expect(at(&bar), mode == 4 ? 512 : 256);
      #pragma unroll 1
      for (int k = 0; k <= (mode == 4); ++k)
        FETCH;                                                   // lands
    }
    if (mode == 1 && t == 40) values[63] = 1;                    // written meanwhile
    if (mode != 2) wait(at(&bar));
    out[t] = values[t];                                          // not awaited
    if (mode == 3 && t == 0) FETCH;                              // refilled while others read
    return;
  }
  values[t] = in[t];
  if (mode != 15) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  if (mode != 11) __syncthreads();
  if (t == 0) STORE;                                             // reads what others write
  if (mode == 12 && t == 0) values[5] = 2;                       // overwrites what is still read
  if (t == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  if (mode == 13 && t == 0) values[5] = out[6];                  // not complete
  if (mode == 14 && t == 0) {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    values[5] = out[6];
  }
}
"""

TWO = """
__device__ void fetch(int half, const float* in, unsigned bar) {
  asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
               :: "r"(at(tile) + 256 * half), "l"(in + 64 * half), "r"(bar) : "memory");
}
extern "C" __global__ void two(float* out, const float* in, int waits, int reads) {
  __shared__ __align__(8) unsigned long long bar[2];
  int t = threadIdx.x;
  if (t == 0) { init(at(&bar[0])); init(at(&bar[1])); }
  __syncthreads();
  if (t == 0) {
    for (int half = 0; half < 2; ++half) { expect(at(&bar[half]), 256); fetch(half, in, at(&bar[half])); }
  }
  wait(at(&bar[waits]));
  out[t] = reinterpret_cast<float*>(tile)[64 * reads + t];
}
"""

SUM = """
extern "C" __global__ void sum(float* out, const float* in, int mode) {
  float* values = reinterpret_cast<float*>(tile);
  int t = threadIdx.x;
  values[t] = in[t];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0 || (mode == 5 && t == 32))
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 256;"  // adds
                 "cp.async.bulk.commit_group;" :: "l"(out), "r"(at(tile)) : "memory");
  if (t != 0) { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); return; }
  if (mode == 1) values[5] = 2;                                  // overwrites what is still read
  if (mode == 4) atomicAdd(out + 7, 100);
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  if (mode == 2) values[5] = out[6];                             // not complete
  if (mode != 5) values[6] = 3;
  if (mode == 6) values[7] = values[8];
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  if (mode == 3) out[5] = out[6];
}
"""

CLUSTER = """
#define MEET asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory")
extern "C" __global__ void __cluster_dims__(2, 1, 1) spread(const __grid_constant__ Map map, unsigned* out, int mode) {
  __shared__ __align__(8) unsigned long long bar;
  unsigned rank, there, its_bar, t = threadIdx.x;
  unsigned* words = reinterpret_cast<unsigned*>(tile);
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(tile) + 512), "r"(rank ^ 1));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_bar) : "r"(at(&bar)), "r"(rank ^ 1));
  if (t == 0) { init(at(&bar)); expect(at(&bar), mode == 0 ? 256 : 128); }
  words[t] = 100 * rank + t;
  words[128 + t] = t;
  words[160 + t] = 0;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  MEET;
  if (t == 0 && mode == 0)  // each loads half of the box, for both
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;" :: "r"(at(tile) + 512 + 128 * rank), "l"(&map), "r"(0), "r"(rank),
                 "r"(at(&bar)), "h"((unsigned short)3) : "memory");
  if (t == 0 && mode == 1)
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
                 :: "r"(there), "r"(at(tile)), "r"(its_bar) : "memory");
  if (t == 0 && mode == 2)
    asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
                 "[%0], [%1], 128, [%2];" :: "r"(there), "r"(at(tile)), "r"(its_bar) : "memory");
  if (mode < 3) wait(at(&bar));
  out[64 * rank + t] = words[128 + t];
  out[64 * rank + 32 + t] = words[160 + t];
  MEET;
}
"""

MAPS = """
#define SET(field, place) asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." place ";" \\
    :: "r"(at(map)), "l"(x), "r"(n), "l"((unsigned long long)pitch) : "memory")
extern "C" __global__ void make(unsigned char* scratch, unsigned char* out, unsigned long long x, int n, int pitch) {
  __shared__ __align__(8) unsigned long long bar;
  __shared__ __align__(128) unsigned map[32];
  int t = threadIdx.x;
  map[t] = 0;
  if (t == 0) init(at(&bar));
  __syncwarp();
  if (t == 0) {
    SET("global_address", "b64 [%0], %1"); SET("rank", "b32 [%0], 1"); SET("elemtype", "b32 [%0], 1");
    SET("interleave_layout", "b32 [%0], 0"); SET("swizzle_mode", "b32 [%0], 1");
    SET("fill_mode", "b32 [%0], 0");
    SET("box_dim", "b32 [%0], 0, 16"); SET("box_dim", "b32 [%0], 1, 4");
    SET("global_dim", "b32 [%0], 0, %2"); SET("global_dim", "b32 [%0], 1, 5");
    SET("global_stride", "b64 [%0], 0, %3");
    SET("element_stride", "b32 [%0], 0, 1"); SET("element_stride", "b32 [%0], 1, 2");
  }
  __syncwarp();
#ifdef WORDS
  if (t < WORDS) ((unsigned*)scratch)[t] = map[t];
  __syncwarp();
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
#else
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
               :: "l"(scratch), "r"(at(map)) : "memory");
#endif
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(scratch) : "memory");
  asm volatile("prefetch.tensormap [%0];" :: "l"(scratch) : "memory");
  if (t == 0) {
    expect(at(&bar), 64);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" :: "r"(at(tile)), "l"(scratch), "r"(n - 8), "r"(2), "r"(at(&bar)));
  }
  wait(at(&bar));
  out[t] = tile[t];
  out[32 + t] = tile[32 + t];
}
"""


@cache
def compiled(source: str, name: str) -> simt.Module:
    """Compile a kernel in one of this file's sources."""
    return simt.load(cuda.compile_kernel(_HEAD + source, FILE, name, "compute_90a").ptx, FILE)


@cache
def module(name: str) -> simt.Module:
    """Compile the kernel with this name, such as load3, store2, store2_add, span_, or span_add_f32."""
    family, _, form = name.partition("_")
    if name == "fetch":
        kernel = _FETCH
    elif family == "span":
        kernel = _span(form.replace("_", "."))
    elif family.startswith("load"):
        kernel = _load(int(family[-1]))
    else:
        kernel = _store(int(family[-1]), "." + form if form else "")
    return compiled(kernel, name)


def run_bulk(name: str, args: Sequence[Any], threads: int = 32, shared: int = 16384, **options: Any) -> simt.Launch:
    """Launch a kernel. Arrays among the arguments are passed as pointers, with buffers named after their positions."""
    arrays = {f"arg{position}": argument for position, argument in enumerate(args) if isinstance(argument, np.ndarray)}
    buffers = [
        simt.Buffer(buffer_name, array.ctypes.data, array.nbytes, array.itemsize, dtype="bytes")
        for buffer_name, array in arrays.items()
    ]
    values = [array.ctypes.data if isinstance(array, np.ndarray) else array for array in args]
    extra_buffers = options.pop("buffers", [])
    return module(name).launch(
        name, grid=(1,), block=(threads,), shared=shared, args=values, buffers=[*buffers, *extra_buffers], **options
    )


def line_of(text: str, source: str = IN_FLIGHT) -> int:
    """Return the number of the only line with this text."""
    (line,) = (n for n, line in enumerate((_HEAD + source).splitlines(), 1) if text in line)
    return line


def aligned_bytes(size: int) -> Words:
    """Return zeros whose address is a multiple of 256."""
    memory = np.zeros(size + 256, np.uint8)
    return memory[-memory.ctypes.data % 256 :][:size]
