"""Four warps, and all of them multiply; warp 0 also loads, one step ahead. Two blocks share an SM."""

import cutlass
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

M, N, K, STAGES = 128, 128, 64, 2


@cute.jit
def load(step, atoms, sources, targets, full):
    stage = step % STAGES
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * (M + N) * K)
    for i in cutlass.range_constexpr(2):
        cute.copy(atoms[i], sources[i][None, step], targets[i][None, stage], tma_bar_ptr=full + stage)


@cute.kernel
def gemm(mma: cute.TiledMma, atom_a, a, layout_a, atom_b, b, layout_b, c: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = SmemAllocator()
    full = smem.allocate_array(cutlass.Int64, STAGES)
    sa = smem.allocate_tensor(atom_a.value_type, layout_a.outer, 1024, layout_a.inner)
    sb = smem.allocate_tensor(atom_b.value_type, layout_b.outer, 1024, layout_b.inner)
    sc = smem.allocate_tensor(c.element_type, cute.make_layout((M, N), stride=(N, 1)), 128)
    if tid == 0:
        for s in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + s, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    ga, gb = cute.local_tile(a, (M, K), (by, None)), cute.local_tile(b, (N, K), (bx, None))
    one = cute.make_layout(1)
    ta, fa = cpasync.tma_partition(atom_a, 0, one, cute.group_modes(sa, 0, 2), cute.group_modes(ga, 0, 2))
    tb, fb = cpasync.tma_partition(atom_b, 0, one, cute.group_modes(sb, 0, 2), cute.group_modes(gb, 0, 2))
    steps = cute.size(ga, mode=[2])
    if warp == 0:
        for step in cutlass.range(cutlass.min(steps, STAGES - 1), unroll=1):
            load(step, (atom_a, atom_b), (fa, fb), (ta, tb), full)

    mine = mma.get_slice(tid)
    ra, rb = mma.make_fragment_A(mine.partition_A(sa)), mma.make_fragment_B(mine.partition_B(sb))
    acc = cute.make_rmem_tensor(mma.partition_shape_C((M, N)), cutlass.Float32)
    acc.fill(0.0)
    mma.set(warpgroup.Field.ACCUMULATE, True)
    for step in cutlass.range(steps, unroll=1):
        stage = step % STAGES
        cute.arch.mbarrier_wait(full + stage, step // STAGES % 2)
        warpgroup.fence()
        for k in cutlass.range_constexpr(K // 16):
            cute.gemm(mma, acc, ra[None, None, k, stage], rb[None, None, k, stage], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        cute.arch.sync_threads()
        if warp == 0 and step + STAGES - 1 < steps:
            load(step + STAGES - 1, (atom_a, atom_b), (fa, fb), (ta, tb), full)

    at = mine.partition_C(sc)
    for i in cutlass.range_constexpr(cute.size(acc)):
        at[i] = acc[i].to(c.element_type)
    cute.arch.sync_threads()
    for i in cutlass.range(tid, M * N, 128, unroll=1):
        row, column = by * M + i // N, bx * N + i % N
        if row < c.shape[0] and column < c.shape[1]:
            c[row, column] = sc[i // N, i % N]


@cute.jit
def host(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    order = LayoutEnum.ROW_MAJOR
    major = order.sm90_mma_major_mode()
    mma = hopper.make_trivial_tiled_mma(
        a.element_type, b.element_type, major, major, cutlass.Float32, (1, 1, 1), tiler_mn=(64, N)
    )
    layout_a = hopper.make_smem_layout_a(order, (M, N, K), a.element_type, STAGES)
    layout_b = hopper.make_smem_layout_b(order, (M, N, K), b.element_type, STAGES)
    op = cpasync.CopyBulkTensorTileG2SOp()
    atom_a, ta = cpasync.make_tiled_tma_atom(op, a, layout_a, (M, K))
    atom_b, tb = cpasync.make_tiled_tma_atom(op, b, layout_b, (N, K))
    grid = [cute.ceil_div(c.shape[1], N), cute.ceil_div(c.shape[0], M), 1]
    gemm(mma, atom_a, ta, layout_a, atom_b, tb, layout_b, c).launch(grid=grid, block=[128, 1, 1])


def wgmma_gemm(a, b):
    c = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype, device=a.device)
    lane.run(host, a, b, c)
    return c
