"""GEMM in Gluon on Hopper, warp-specialized: one warp copies, two warpgroups multiply.

wgmma_gemm(a, b) returns a @ b.T for contiguous bfloat16 matrices a of shape (m, k) and b of shape (n, k), k a multiple
of 8, as a new contiguous bfloat16 tensor of shape (m, n). Accumulators are float32, and rounded once. Tensors start at
multiples of 16 bytes.

There are as many programs as SMs, and each computes one tile after another. The producer, a warp of its own, runs ahead
into the next tile: it loads the first k-tiles of that tile while the consumers store the last one. A stage has two
mbarriers, `full` and `empty`.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # the name changed after Triton 3.6

ROWS, COLUMNS, DEPTH, STAGES, WARPS, GROUP = 128, 256, 64, 4, 8, 8


@gluon.jit
def tile_of(number, m, n, ROWS: gl.constexpr, COLUMNS: gl.constexpr, GROUP: gl.constexpr):
    """First row and column of a tile. GROUP rows of tiles share the columns of b in L2; the last group may be lower."""
    tiles_down, tiles_across = gl.cdiv(m, ROWS), gl.cdiv(n, COLUMNS)
    group = number // (GROUP * tiles_across) * GROUP
    height = gl.minimum(tiles_down - group, GROUP)
    place = number % (GROUP * tiles_across)
    return (group + place % height) * ROWS, place // height * COLUMNS


@gluon.jit
def produce(a_desc, b_desc, out_ptr, m, n, k, a_tiles, b_tiles, full, empty, STAGES: gl.constexpr, GROUP: gl.constexpr):
    ROWS: gl.constexpr = a_desc.block_type.shape[0]
    DEPTH: gl.constexpr = a_desc.block_type.shape[1]
    COLUMNS: gl.constexpr = b_desc.block_type.shape[0]
    steps, copied = gl.cdiv(k, DEPTH), 0
    for number in range(gl.program_id(0), gl.cdiv(m, ROWS) * gl.cdiv(n, COLUMNS), gl.num_programs(0)):
        row, column = tile_of(number, m, n, ROWS, COLUMNS, GROUP)
        for step in range(steps):
            stage = copied % STAGES
            mbarrier.wait(empty.index(stage), copied // STAGES & 1 ^ 1)  # a fresh stage is empty
            bar = full.index(stage)
            mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma_load(a_desc, [row, step * DEPTH], bar, a_tiles.index(stage))
            tma_load(b_desc, [column, step * DEPTH], bar, b_tiles.index(stage))
            copied += 1


@gluon.jit
def consume(a_desc, b_desc, out_ptr, m, n, k, a_tiles, b_tiles, full, empty, STAGES: gl.constexpr, GROUP: gl.constexpr):
    ROWS: gl.constexpr = a_desc.block_type.shape[0]
    DEPTH: gl.constexpr = a_desc.block_type.shape[1]
    COLUMNS: gl.constexpr = b_desc.block_type.shape[0]
    FRAGMENT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, COLUMNS, 16])
    steps, taken = gl.cdiv(k, DEPTH), 0
    for number in range(gl.program_id(0), gl.cdiv(m, ROWS) * gl.cdiv(n, COLUMNS), gl.num_programs(0)):
        row, column = tile_of(number, m, n, ROWS, COLUMNS, GROUP)
        acc = gl.zeros([ROWS, COLUMNS], gl.float32, FRAGMENT)
        for step in range(steps):
            stage = taken % STAGES
            mbarrier.wait(full.index(stage), taken // STAGES & 1)
            acc = warpgroup_mma(a_tiles.index(stage), b_tiles.index(stage).permute((1, 0)), acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(acc,))
            mbarrier.arrive(empty.index((taken + STAGES - 1) % STAGES), count=1, pred=step > 0)
            taken += 1
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((taken + STAGES - 1) % STAGES), count=1)
        i = (row + gl.arange(0, ROWS, gl.SliceLayout(1, FRAGMENT)))[:, None]
        j = (column + gl.arange(0, COLUMNS, gl.SliceLayout(0, FRAGMENT)))[None, :]
        gl.store(out_ptr + i.to(gl.int64) * n + j, acc.to(gl.bfloat16), mask=(i < m) & (j < n))


@gluon.jit
def wgmma_kernel(a_desc, b_desc, out_ptr, m, n, k, STAGES: gl.constexpr, GROUP: gl.constexpr):
    ROWS: gl.constexpr = a_desc.block_type.shape[0]
    DEPTH: gl.constexpr = a_desc.block_type.shape[1]
    COLUMNS: gl.constexpr = b_desc.block_type.shape[0]
    a_tiles = gl.allocate_shared_memory(a_desc.dtype, [STAGES, ROWS, DEPTH], a_desc.layout)
    b_tiles = gl.allocate_shared_memory(b_desc.dtype, [STAGES, COLUMNS, DEPTH], b_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for index in gl.static_range(STAGES):
        mbarrier.init(full.index(index), count=1)
        mbarrier.init(empty.index(index), count=1)
    args = (a_desc, b_desc, out_ptr, m, n, k, a_tiles, b_tiles, full, empty, STAGES, GROUP)
    gl.warp_specialize([(consume, args), (produce, args)], [1], [24])


def wgmma_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[0]
    out = a.new_empty(m, n)
    swizzled = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    a_desc = TensorDescriptor.from_tensor(a, [ROWS, DEPTH], swizzled)
    b_desc = TensorDescriptor.from_tensor(b, [COLUMNS, DEPTH], swizzled)
    tiles = triton.cdiv(m, ROWS) * triton.cdiv(n, COLUMNS)
    programs = min(tiles, torch.cuda.get_device_properties(a.device).multi_processor_count)
    wgmma_kernel[(programs,)](a_desc, b_desc, out, m, n, k, STAGES, GROUP, num_warps=WARPS)
    return out
