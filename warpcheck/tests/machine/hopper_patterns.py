"""Kernels for sm_90a, one per memory access pattern: boxes, spans, clusters, matrices, and mbarriers.

Every kernel is `kernel(map, in, out)`: a tensor map over a 256 x 256 matrix of float32, and 256 KiB in each buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

from machine.boxes import Case
from machine.bulk_kernels import aligned_bytes
from warpcheck import simt
from warpcheck.frontends import cuda
from warpcheck.tensor_map import SWIZZLES

__all__ = ["NAMES", "PATTERNS", "SHARED", "SIDE", "HopperPattern"]

SIDE = 256
SHARED = 66 << 10

_HEAD = """
struct alignas(64) Map { unsigned long long opaque[16]; };
extern __shared__ __align__(1024) unsigned char tile[];
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ unsigned there(unsigned address, unsigned rank) {
  unsigned found;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"(address), "r"(rank));
  return found;
}
__device__ unsigned rank_of_block() { unsigned r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
#define DO(text) asm volatile(text ";" ::: "memory")
#define MEET DO("barrier.cluster.arrive.release"); DO("barrier.cluster.wait.acquire")
#define FENCE DO("fence.proxy.async.shared::cta")
__device__ void init(unsigned bar) { asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(bar) : "memory"); }
__device__ void expect(unsigned bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
__device__ void wait(unsigned bar) {
  asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra AGAIN; }"
               :: "r"(bar) : "memory");
}
extern "C" __global__ void kernel(const __grid_constant__ Map map, const float* in, float* out) {
  const unsigned t = threadIdx.x;
  __shared__ __align__(8) unsigned long long barrier;
  const unsigned bar = at(&barrier);
  float* values = reinterpret_cast<float*>(tile);
"""


@dataclass(frozen=True)
class HopperPattern:
    """A kernel with one warp per block unless `threads` says otherwise.

    Attributes:
        box: The rows and columns of the tensor map's box.
        swizzle: The swizzle of the tensor map, in bytes.
    """

    name: str
    body: str
    box: tuple[int, int] = (8, 32)
    swizzle: int = 0
    blocks: int = 1
    threads: int = 32

    @property
    def source(self) -> str:
        return _HEAD + self.body + "\n}\n"

    def launch(self) -> simt.Launch:
        mapped, source, out = (aligned_bytes(4 * SIDE * SIDE) for _ in range(3))
        box = Case(7, [SIDE, SIDE], [self.box[1], self.box[0]], [0, 0], SWIZZLES.index(self.swizzle))
        file = f"{self.name}.cu"
        module = simt.load(cuda.compile_kernel(self.source, file, "kernel", "compute_90a").ptx, file)
        return module.launch(
            "kernel",
            grid=(self.blocks,),
            block=(self.threads,),
            shared=SHARED,
            cluster=(self.blocks,) if self.blocks > 1 else (),
            args=[box.map(mapped.ctypes.data), source.ctypes.data, out.ctypes.data],
            buffers=[
                simt.Buffer(name, array.ctypes.data, array.nbytes, 4)
                for name, array in zip(("given", "in", "out"), (mapped, source, out), strict=True)
            ],
        )


def _loads(name: str, box: tuple[int, int], swizzle: int = 0, x: int = 0, y: int = 0) -> HopperPattern:
    body = f"""
  if (t == 0) {{
    init(bar);
    expect(bar, {4 * box[0] * box[1]});
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {{%2, %3}}], [%4];" :: "r"(at(tile)), "l"(&map), "r"({x}), "r"({y}), "r"(bar) : "memory");
  }}
  __syncthreads();
  wait(bar);"""
    return HopperPattern(f"load_{name}", body, box, swizzle)


def _stores(
    name: str, box: tuple[int, int], swizzle: int = 0, x: int = 0, y: int = 0, add: bool = False
) -> HopperPattern:
    opcode = (
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile"
        if add
        else "cp.async.bulk.tensor.2d.global.shared::cta.tile"
    )
    body = f"""
  for (int i = t; i < {box[0] * box[1]}; i += 32) values[i] = i;
  FENCE;
  __syncthreads();
  if (t == 0) {{
    asm volatile("{opcode}.bulk_group [%0, {{%1, %2}}], [%3];"
                 :: "l"(&map), "r"({x}), "r"({y}), "r"(at(tile)) : "memory");
    DO("cp.async.bulk.commit_group");
    DO("cp.async.bulk.wait_group 0");
  }}"""
    return HopperPattern(f"{'add' if add else 'store'}_{name}", body, box, swizzle)


def _span(name: str, nbytes: int, offset: int = 0) -> HopperPattern:
    body = f"""
  if (t == 0) {{
    init(bar);
    expect(bar, {nbytes});
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], {nbytes}, [%2];"
                 :: "r"(at(tile)), "l"(in + {offset // 4}), "r"(bar) : "memory");
  }}
  __syncthreads();
  wait(bar);"""
    return HopperPattern(f"span_{name}", body)


def _span_out(name: str, nbytes: int, offset: int = 0, add: bool = False) -> HopperPattern:
    opcode = (
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"
        if add
        else "cp.async.bulk.global.shared::cta.bulk_group"
    )
    body = f"""
  for (int i = t; i < {nbytes // 4}; i += 32) values[i] = i;
  FENCE;
  __syncthreads();
  if (t == 0) {{
    asm volatile("{opcode} [%0], [%1], {nbytes};" :: "l"(out + {offset // 4}), "r"(at(tile)) : "memory");
    DO("cp.async.bulk.commit_group");
    DO("cp.async.bulk.wait_group 0");
  }}"""
    return HopperPattern(f"span_{'add' if add else 'out'}_{name}", body)


def _multicast(size: int) -> HopperPattern:
    rows = 8 // size
    body = f"""
  const unsigned rank = rank_of_block();
  if (t == 0) {{ init(bar); expect(bar, 1024); }}
  MEET;
  if (t == 0)
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {{%2, %3}}], [%4], %5;" :: "r"(at(tile) + {rows * 128} * rank), "l"(&map), "r"(0),
                 "r"({rows} * rank), "r"(bar), "h"((unsigned short){(1 << size) - 1}) : "memory");
  wait(bar);
  MEET;"""
    return HopperPattern(f"multicast_{size}", body, (rows, 32), 0, size)


def _peer(name: str, body: str, blocks: int = 2) -> HopperPattern:
    text = f"""
  const unsigned rank = rank_of_block(), other = there(at(tile), rank ^ 1), bar_there = there(bar, rank ^ 1);
  for (int i = t; i < 4096; i += 32) values[i] = i;
  if (t == 0) init(bar);
  MEET;
  {body}
  MEET;"""
    return HopperPattern(f"peer_{name}", text, blocks=blocks)


def _matrices(name: str, opcode: str, rows: str, count: int, stores: bool = False) -> HopperPattern:
    registers = ", ".join(f"%{n}" for n in range(count))
    if stores:
        inputs = ", ".join(f'"r"(w[{n}])' for n in range(count))
        operands = ", ".join(f"%{n + 1}" for n in range(count))
        body = f"""
  unsigned w[4] = {{t, t + 1, t + 2, t + 3}};
  values[t] = 0;
  __syncthreads();
  asm volatile("stmatrix.sync.aligned.{opcode} [%0], {{{operands}}};" :: "r"(at(tile) + {rows}), {inputs} : "memory");
  __syncthreads();
  out[t] = values[t];"""
    else:
        outputs = ", ".join(f'"=r"(w[{n}])' for n in range(count))
        body = f"""
  unsigned w[4] = {{}};
  for (int i = t; i < 4096; i += 32) values[i] = i;
  __syncthreads();
  asm volatile("ldmatrix.sync.aligned.{opcode} {{{registers}}}, [%{count}];"
               : {outputs} : "r"(at(tile) + {rows}) : "memory");
  out[t] = w[0] + w[1] + w[2] + w[3];"""
    return HopperPattern(name, body)


def _product(name: str, n: int, lead: int, stride: int, mode: int, from_registers: bool = False) -> HopperPattern:
    words = n // 2
    d = ", ".join(f"%{k}" for k in range(words))
    sums = ", ".join(f'"+f"(d[{k}])' for k in range(words))
    a = f"{{%{words}, %{words + 1}, %{words + 2}, %{words + 3}}}" if from_registers else f"%{words}"
    b = words + (4 if from_registers else 1)
    inputs = '"r"(t), "r"(t), "r"(t), "r"(t)' if from_registers else '"l"(a)'
    majors = "0" if from_registers else "0, 0"
    body = f"""
  for (int i = t; i < 16384; i += 128) values[i] = 0;
  FENCE;
  __syncthreads();
  const unsigned long long form = {lead >> 4}ull << 16 | {stride >> 4}ull << 32 | {mode}ull << 62;
  const unsigned long long a = form | at(tile) >> 4, b = form | at(tile) + 16384 >> 4;
  float d[{words}] = {{}};
  DO("wgmma.fence.sync.aligned");
  asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{d}}}, {a}, %{b}, 1, 1, 1, {majors};"
               : {sums} : {inputs}, "l"(b));
  DO("wgmma.commit_group.sync.aligned");
  DO("wgmma.wait_group.sync.aligned 0");
  float sum = 0;
  for (int k = 0; k < {words}; ++k) sum += d[k];
  out[t] = sum;"""
    return HopperPattern(f"product_{name}", body, threads=128)


PATTERNS = (
    _loads("wide", (8, 32)),
    _loads("wide_128B", (8, 32), 128),
    _loads("tall_128B", (64, 32), 128),
    _loads("narrow_64B", (16, 16), 64),
    _loads("narrow_32B", (16, 8), 32),
    _loads("rows", (8, 256)),
    _loads("one_row", (1, 64)),
    _loads("thin", (64, 4)),
    _loads("half_a_sector", (8, 32), x=4),
    _loads("half_a_sector_128B", (8, 32), 128, x=4),
    _loads("past_the_end", (16, 32), x=240, y=250),
    _loads("past_the_beginning", (16, 32), x=-8, y=-3),
    _stores("wide", (8, 32)),
    _stores("wide_128B", (8, 32), 128),
    _stores("tall", (64, 32)),
    _stores("thin", (64, 4)),
    _stores("half_a_sector", (8, 32), x=4),
    _stores("past_the_end", (16, 32), x=240, y=250),
    _stores("wide", (8, 32), add=True),
    _stores("tall", (64, 32), add=True),
    _span("least", 16),
    _span("three", 48),
    _span("sector_and_a_half", 48, 16),
    _span("line", 128),
    _span("long", 4096),
    _span("long_shifted", 4096, 16),
    _span_out("least", 16),
    _span_out("line", 128),
    _span_out("long", 4096),
    _span_out("shifted", 512, 16),
    _span_out("line", 128, add=True),
    _span_out("long", 4096, add=True),
    _multicast(2),
    _multicast(4),
    _multicast(8),
    _peer(
        "load",
        'float v; asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(other + 4 * t) : "memory"); '
        "out[t] = v;",
    ),
    _peer(
        "load_conflict",
        'float v; asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(other + 128 * t) : "memory"); '
        "out[t] = v;",
    ),
    _peer(
        "load_four",
        'float v, w, x, y; asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" '
        ': "=f"(v), "=f"(w), "=f"(x), "=f"(y) : "r"(other + 16 * t) : "memory"); out[t] = v + w + x + y;',
    ),
    _peer(
        "store", 'asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(other + 512 + 4 * t), "f"(1.0f) : "memory");'
    ),
    _peer(
        "add", 'asm volatile("red.shared::cluster.add.u32 [%0], %1;" :: "r"(other + 512 + 4 * t), "r"(t) : "memory");'
    ),
    _peer(
        "add_one_place",
        'asm volatile("red.shared::cluster.add.u32 [%0], %1;" :: "r"(other + 512), "r"(t) : "memory");',
    ),
    _peer(
        "arrive",
        'if (t == 0) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" '
        ':: "r"(bar_there) : "memory"); wait(bar);',
    ),
    _peer(
        "asynchronous",
        'if (t == 0) expect(bar, 128); MEET; asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 '
        '[%0], %1, [%2];" :: "r"(other + 512 + 4 * t), "r"(t), "r"(bar_there) : "memory"); wait(bar); '
        "out[t] = values[128 + t];",
    ),
    _peer(
        "copy",
        "FENCE; __syncthreads(); if (t == 0) { expect(bar, 128); } MEET; if (t == 0) "
        'asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" '
        ':: "r"(other + 512), "r"(at(tile)), "r"(bar_there) : "memory"); wait(bar); out[t] = values[128 + t];',
    ),
    _matrices("ldmatrix_one", "m8n8.x1.shared.b16", "16 * (t % 8)", 1),
    _matrices("ldmatrix_four", "m8n8.x4.shared.b16", "16 * t", 4),
    _matrices("ldmatrix_strided", "m8n8.x4.shared.b16", "128 * t", 4),
    _matrices("ldmatrix_padded", "m8n8.x4.shared.b16", "144 * t", 4),
    _matrices("ldmatrix_transposed", "m8n8.x4.trans.shared.b16", "80 * t", 4),
    _matrices("stmatrix_one", "m8n8.x1.shared.b16", "16 * (t % 8)", 1, stores=True),
    _matrices("stmatrix_four", "m8n8.x4.shared.b16", "16 * t", 4, stores=True),
    _matrices("stmatrix_strided", "m8n8.x4.shared.b16", "64 * t", 4, stores=True),
    _product("n8", 8, 128, 256, 0),
    _product("n64_128B", 64, 16, 1024, 1),
    _product("n128_64B", 128, 16, 512, 2),
    _product("n64_registers", 64, 16, 1024, 1, from_registers=True),
    HopperPattern(
        "arrive_own",
        "  if (t == 0) init(bar);\n  __syncthreads();\n  if (t == 5) expect(bar, 0);\n  wait(bar);\n  out[t] = t;",
    ),
)
NAMES = [pattern.name for pattern in PATTERNS]
