"""One thread of each warpgroup releases a stage, as in CUTLASS's C++: what one warp has waited for is done for all."""

import cutlass
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

WARP = 32
DEPTH = 64  # of a stage along k: rows of 128 bytes, which the widest swizzle spans
GROUP = 8  # rows of tiles that neighboring blocks share, so that L2 serves a and b
WIDE, NARROW = ((128, 256), 4), ((64, 128), 8)  # tiles of out, with as many stages as shared memory has room for


@cute.kernel
def multiply(
    mma: cute.TiledMma,
    a,
    b,
    out: cute.Tensor,
    tile: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    by_tma: cutlass.Constexpr,
):
    """One tile of out. a, b: atom, TMA tensor and layout of the ring."""
    (load_a, a, ring_a), (load_b, b, ring_b) = a, b
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    groups = cutlass.const_expr(mma.size // 128)
    loader = cutlass.const_expr(mma.size // WARP)
    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, stages)
    empty = memory.allocate_array(cutlass.Int64, stages)
    shared_a = memory.allocate_tensor(load_a.value_type, ring_a.outer, 1024, ring_a.inner)
    shared_b = memory.allocate_tensor(load_b.value_type, ring_b.outer, 1024, ring_b.inner)
    if thread == 0:
        for s in cutlass.range_constexpr(stages):
            cute.arch.mbarrier_init(full + s, 1)
            cute.arch.mbarrier_init(empty + s, groups)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    row, column = place(out.shape, tile)
    to_a, from_a = partition(load_a, shared_a, cute.local_tile(a, (tile[0], DEPTH), (row, None)))
    to_b, from_b = partition(load_b, shared_b, cute.local_tile(b, (tile[1], DEPTH), (column, None)))
    steps = cute.ceil_div(a.shape[1], DEPTH)
    if warp == loader:
        for step in cutlass.range(steps, unroll=1):
            stage, phase = step % stages, step // stages % 2
            cute.arch.mbarrier_wait(empty + stage, phase ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * DEPTH * (tile[0] + tile[1]))
            cute.copy(load_a, from_a[None, step], to_a[None, stage], tma_bar_ptr=full + stage)
            cute.copy(load_b, from_b[None, step], to_b[None, stage], tma_bar_ptr=full + stage)
    if warp < loader:
        mine = mma.get_slice(thread)
        fragments_a = mma.make_fragment_A(mine.partition_A(shared_a))
        fragments_b = mma.make_fragment_B(mine.partition_B(shared_b))
        target = mine.partition_C(cute.local_tile(out, tile, (row, column)))
        where = mine.partition_C(cute.local_tile(cute.make_identity_tensor(out.shape), tile, (row, column)))
        total = cute.make_rmem_tensor(target.shape, cutlass.Float32)
        mma.set(warpgroup.Field.ACCUMULATE, False)
        for step in cutlass.range(steps, unroll=1):
            stage, phase = step % stages, step // stages % 2
            cute.arch.mbarrier_wait(full + stage, phase)
            add_products(mma, total, fragments_a, fragments_b, stage)
            mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.wait_group(0)
            if thread % 128 == 0:
                cute.arch.mbarrier_arrive(empty + stage)
        rounded = cute.make_rmem_tensor(target.shape, out.element_type)
        rounded.store(total.load().to(out.element_type))
        for i in cutlass.range_constexpr(0, cute.size(total), 2):
            if cute.elem_less(where[i + 1], out.shape) and by_tma:
                pair, there = (
                    cute.make_tensor(t.iterator + t.layout(i), cute.make_layout(2)) for t in (rounded, target)
                )
                cute.autovec_copy(pair, there)
            else:
                for j in cutlass.range_constexpr(2):
                    if cute.elem_less(where[i + j], out.shape):
                        target[i + j] = rounded[i + j]


@cute.jit
def place(shape, tile):
    """Row and column of this block's tile. Blocks go down GROUP rows of tiles before they go on to the next column."""
    block, _, _ = cute.arch.block_idx()
    down, across = cute.ceil_div(shape[0], tile[0]), cute.ceil_div(shape[1], tile[1])
    first, within = block // (GROUP * across) * GROUP, block % (GROUP * across)
    height = cutlass.min(down - first, GROUP)
    return first + within % height, within // height


@cute.jit
def partition(atom: cute.CopyAtom, shared: cute.Tensor, tiles: cute.Tensor):
    """Stages and tiles as a copy with the atom takes them."""
    grouped = cute.group_modes(shared, 0, 2), cute.group_modes(tiles, 0, 2)
    return cpasync.tma_partition(atom, 0, cute.make_layout(1), *grouped)


@cute.jit
def add_products(mma, total, fragments_a, fragments_b, stage):
    """Issue the products of a stage, four steps of 16 along k, as one group."""
    warpgroup.fence()
    for part in cutlass.range_constexpr(cute.size(fragments_a, mode=[2])):
        at = (None, None, part, stage)
        cute.gemm(mma, total, fragments_a[at], fragments_b[at], total)
        mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()


@cute.jit
def matmul(
    a: cute.Tensor,
    b: cute.Tensor,
    out: cute.Tensor,
    tile: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    by_tma: cutlass.Constexpr,
):
    """Make the tiled MMA, the swizzled layouts and the tensor maps, and launch a block for each tile of out."""
    dtype, rows = a.element_type, LayoutEnum.ROW_MAJOR
    k_major = rows.sm90_mma_major_mode()
    groups = cutlass.const_expr(max(1, tile[0] * tile[1] // (128 * 128)))
    mma = hopper.make_trivial_tiled_mma(
        dtype, dtype, k_major, k_major, cutlass.Float32, (groups, 1, 1), tiler_mn=(64, tile[1])
    )
    load = cpasync.CopyBulkTensorTileG2SOp()
    ring_a = hopper.make_smem_layout_a(rows, (*tile, DEPTH), dtype, stages)
    ring_b = hopper.make_smem_layout_b(rows, (*tile, DEPTH), dtype, stages)
    one = cutlass.const_expr((None, None, 0))
    in_a = (*cpasync.make_tiled_tma_atom(load, a, cute.slice_(ring_a, one), (tile[0], DEPTH)), ring_a)
    in_b = (*cpasync.make_tiled_tma_atom(load, b, cute.slice_(ring_b, one), (tile[1], DEPTH)), ring_b)
    blocks = cute.ceil_div(out.shape[0], tile[0]) * cute.ceil_div(out.shape[1], tile[1])
    multiply(mma, in_a, in_b, out, tile, stages, by_tma).launch(grid=[blocks, 1, 1], block=[mma.size + WARP, 1, 1])


def wgmma_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = a.new_empty(a.shape[0], b.shape[0])
    tile, stages = NARROW if len(a) <= 128 else WIDE
    lane.run(matmul, a, b, out, tile, stages, out.shape[1] % 8 == 0)
    return out
