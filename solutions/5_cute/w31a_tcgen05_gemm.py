"""Multiply matrices with tcgen05.mma, whose accumulator is in tensor memory.

tcgen05_gemm(a, b) returns a @ b.T in bfloat16, with float32 accumulators that are rounded once. a is m x k and b is n x
k, both contiguous bfloat16 with addresses that are multiples of 16 bytes. m and n may be any positive number. k is a
multiple of 8, because TMA requires rows that start at multiples of 16 bytes. Every matrix has fewer than 2**31
elements.

A block computes one tile of out with six warps. For each step along k, warp 5 loads a tile of a and a tile of b by TMA
into a stage of a circular buffer. Warp 4 issues the tcgen05.mma instructions, which read both operands from shared
memory and add to an accumulator in tensor memory. Warps 0 to 3 wait until the accumulator is complete, load it into
registers, round it, and write it to shared memory. From there TMA stores it, or threads do if the rows of out don't
start at multiples of 16 bytes.

A stage has two mbarriers, as in week 22. `full` completes when the stage's bytes have arrived, and `empty` completes
when the MMAs that read them are done. `done` completes when the whole accumulator is complete.

TMA, the circular buffer, the tensor maps, and the store are given, because they're the same as in weeks 21 and 22.
Write the new parts: the allocation of tensor memory in `multiply`, `multiply_steps`, and `round_tile`.

The grader checks the values and that TMA and tensor cores do the work. On an sm_100 GPU, it also compares the time with
cuBLAS. The PTX machine runs sm_100a as the manual describes it. Its behavior hasn't been confirmed on hardware yet.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. In total, global
memory accesses may move at most 6 times the size of the inputs and outputs. At least 50% of the global memory traffic
must go through TMA. At least 50% of the MMAs must be issued while a copy of the next tiles is in flight. The
multiply-adds must run on tensor cores.

Bound: 2 m n k operations. A tile of 128 x 256 does 85 of them per byte that TMA loads. Its accumulator takes 256 of the
512 columns of tensor memory, three stages take 144 KB of shared memory, and the rounded tile takes 64 KB. The kernel
hasn't been timed on a B200. The warps' roles follow CUTLASS's tutorial for Blackwell (tutorial_gemm), as do the expert
kernel's.
"""

import cutlass
import cutlass.utils.blackwell_helpers as blackwell
import torch
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.memory import SmemAllocator, TmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

WARP = 32
# Rows and columns of a tile of out, and columns of a and b in a stage: 128 bytes, the width of the widest swizzle.
TILE = (128, 256, 64)
STAGES = 3
# Columns of out that the epilogue loads, rounds, and stores at once.
STRIP = 64
# Rows of tiles that neighboring blocks share, so that L2 serves a and b.
GROUP = 8
EPILOGUE_WARPS, MMA_WARP, TMA_WARP, WARPS = 4, 4, 5, 6


@cute.kernel
def multiply(mma: cute.TiledMma, a, b, out: cute.Tensor, strips, store):
    """Compute one tile of out. a, b: copy, TMA tensor, and layout of the ring. store: copy and TMA tensor, or None."""
    (load_a, a, ring_a), (load_b, b, ring_b) = a, b
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    row, column = place(out.shape)

    memory = SmemAllocator()
    full, empty = (memory.allocate_array(cutlass.Int64, STAGES) for _ in range(2))
    done = memory.allocate_array(cutlass.Int64, 1)
    shared_a = memory.allocate_tensor(load_a.value_type, ring_a.outer, 1024, ring_a.inner)
    shared_b = memory.allocate_tensor(load_b.value_type, ring_b.outer, 1024, ring_b.inner)
    shared_out = memory.allocate_tensor(out.element_type, strips.outer, 1024, strips.inner)
    if warp == TMA_WARP:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 1)
            cute.arch.mbarrier_init(done, 1)
        cute.arch.mbarrier_init_fence()

    tensor_memory = TmemAllocator(barrier_for_retrieve=pipeline.NamedBarrier(1, WARPS * WARP))
    tensor_memory.allocate(TILE[1])  # by warp 0
    tensor_memory.wait_for_alloc()  # a barrier for all threads: the mbarriers are initialized, too
    address = tensor_memory.retrieve_ptr(cutlass.Float32)
    acc = cute.make_tensor(address, mma.make_fragment_C(mma.partition_shape_C(TILE[:2])).layout)

    if warp == TMA_WARP:
        copy_a = partition(load_a, shared_a, mma.get_slice(0).partition_A(cute.local_tile(a, TILE[::2], (row, None))))
        copy_b = partition(load_b, shared_b, mma.get_slice(0).partition_B(cute.local_tile(b, TILE[1:], (column, None))))
        load_steps(full, empty, (load_a, *copy_a), (load_b, *copy_b))
    elif warp == MMA_WARP:
        steps = cute.ceil_div(a.shape[1], TILE[2])
        multiply_steps(mma, acc, mma.make_fragment_A(shared_a), mma.make_fragment_B(shared_b), steps, full, empty, done)
    else:
        cute.arch.mbarrier_wait(done, 0)
        round_tile(acc, shared_out)
        store_tile(shared_out, out, store, row, column)
        tensor_memory.relinquish_alloc_permit()
        tensor_memory.free(address)


@cute.jit
def place(shape):
    """Return the row and column of this block's tile, in tiles. Blocks go down GROUP rows of tiles first."""
    block, _, _ = cute.arch.block_idx()
    down, across = cute.ceil_div(shape[0], TILE[0]), cute.ceil_div(shape[1], TILE[1])
    first, within = block // (GROUP * across) * GROUP, block % (GROUP * across)
    height = cutlass.min(down - first, GROUP)
    return first + within % height, within // height


@cute.jit
def partition(copy: cute.CopyAtom, shared: cute.Tensor, tiles: cute.Tensor):
    """Return tiles [.., step] and stages [.., stage] as the copy takes them. Both are partitioned for the MMA."""
    to_shared, from_tiles = cpasync.tma_partition(
        copy, 0, cute.make_layout(1), cute.group_modes(shared, 0, 3), cute.group_modes(tiles, 0, 3)
    )
    return from_tiles, to_shared


@cute.jit
def load_steps(full, empty, copy_a, copy_b):
    """Load a tile of a and one of b for each step along k, into one stage after the other."""
    (load_a, from_a, to_a), (load_b, from_b, to_b) = copy_a, copy_b
    for step in cutlass.range(cute.size(from_a, mode=[1]), unroll=1):
        stage, lap = step % STAGES, step // STAGES
        cute.arch.mbarrier_wait(empty + stage, lap % 2 ^ 1)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * (TILE[0] + TILE[1]) * TILE[2])
        cute.copy(load_a, from_a[None, step], to_a[None, stage], tma_bar_ptr=full + stage)
        cute.copy(load_b, from_b[None, step], to_b[None, stage], tma_bar_ptr=full + stage)


@cute.jit
def multiply_steps(mma, acc, fragments_a, fragments_b, steps, full, empty, done):
    """Issue the MMAs of all steps. A commit arrives at an mbarrier when the MMAs before it have completed."""
    for step in cutlass.range(steps, unroll=1):
        stage, lap = step % STAGES, step // STAGES
        cute.arch.mbarrier_wait(full + stage, lap % 2)
        for part in cutlass.range_constexpr(cute.size(fragments_a, mode=[2])):
            mma.set(tcgen05.Field.ACCUMULATE, step > 0 or part > 0)
            cute.gemm(mma, acc, fragments_a[None, None, part, stage], fragments_b[None, None, part, stage], acc)
        with cute.arch.elect_one():
            tcgen05.commit(empty + stage)
    with cute.arch.elect_one():
        tcgen05.commit(done)


@cute.jit
def round_tile(acc, shared):
    """Load the accumulator, round it, and write it to shared memory [row, column, strip], where TMA can read it."""
    thread, _, _ = cute.arch.thread_idx()
    strips = cute.flat_divide(acc[(None, None), 0, 0], (TILE[0], STRIP))  # [row, column, 0, strip]
    load = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(STRIP)), cutlass.Float32)
    from_acc = tcgen05.make_tmem_copy(load, strips[None, None, 0, 0]).get_slice(thread)
    sources, targets = from_acc.partition_S(strips), from_acc.partition_D(shared)
    for strip in cutlass.range_constexpr(TILE[1] // STRIP):
        loaded = cute.make_rmem_tensor(targets[None, None, None, 0].shape, cutlass.Float32)
        cute.copy(from_acc, sources[None, None, None, 0, strip], loaded)
        rounded = cute.make_rmem_tensor_like(loaded, shared.element_type)
        rounded.store(loaded.load().to(shared.element_type))
        cute.autovec_copy(rounded, targets[None, None, None, strip])
    cute.arch.fence_proxy("async.shared", space="cta")  # threads wrote, the TMA unit reads
    cute.arch.barrier(barrier_id=2, number_of_threads=EPILOGUE_WARPS * WARP)  # all lanes are loaded and written


@cute.jit
def store_tile(shared, out, store, row, column):
    """Store the rounded tile: one warp by TMA, or else all threads of the epilogue."""
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if cutlass.const_expr(store is not None):
        save, tiles = store
        if warp == 0:
            tile = cute.flat_divide(cute.local_tile(tiles, TILE[:2], (row, column)), (TILE[0], STRIP))
            from_strips, to_out = cpasync.tma_partition(
                save, 0, cute.make_layout(1), cute.group_modes(shared, 0, 2), cute.group_modes(tile, 0, 2)
            )
            for strip in cutlass.range_constexpr(TILE[1] // STRIP):
                cute.copy(save, from_strips[None, strip], to_out[None, 0, strip])
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)
    else:
        target = cute.local_tile(out, TILE[:2], (row, column))
        inside = (out.shape[0] - row * TILE[0], out.shape[1] - column * TILE[1])
        for i in cutlass.range(thread, TILE[0] * TILE[1], EPILOGUE_WARPS * WARP, unroll=1):
            at = (i // TILE[1], i % TILE[1])
            if cute.elem_less(at, inside):
                target[at] = shared[at[0], at[1] % STRIP, at[1] // STRIP]


@cute.jit
def matmul(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, by_tma: cutlass.Constexpr):
    """Make the tiled MMA, the swizzled layouts and the tensor maps, and launch a block for each tile of out."""
    dtype, k_major = a.element_type, tcgen05.OperandMajorMode.K
    mma = blackwell.make_trivial_tiled_mma(
        dtype, dtype, k_major, k_major, cutlass.Float32, tcgen05.CtaGroup.ONE, TILE[:2]
    )
    ring_a = blackwell.make_smem_layout_a(mma, TILE, dtype, STAGES)
    ring_b = blackwell.make_smem_layout_b(mma, TILE, dtype, STAGES)
    stage_a, stage_b = (cute.select(ring, mode=[0, 1, 2]) for ring in (ring_a, ring_b))
    load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    load_a, from_a = cute.nvgpu.make_tiled_tma_atom_A(load, a, stage_a, TILE, mma)
    load_b, from_b = cute.nvgpu.make_tiled_tma_atom_B(load, b, stage_b, TILE, mma)
    strip = (TILE[0], STRIP)
    strips = blackwell.make_smem_layout_epi(dtype, LayoutEnum.ROW_MAJOR, strip, TILE[1] // STRIP)
    store = None
    if cutlass.const_expr(by_tma):
        one_strip = cute.select(strips, mode=[0, 1])
        store = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), out, one_strip, strip)
    multiply(mma, (load_a, from_a, ring_a), (load_b, from_b, ring_b), out, strips, store).launch(
        grid=[cute.ceil_div(out.shape[0], TILE[0]) * cute.ceil_div(out.shape[1], TILE[1]), 1, 1],
        block=[WARPS * WARP, 1, 1],
    )


def tcgen05_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = a.new_empty(a.shape[0], b.shape[0])
    if out.numel() == 0 or a.shape[1] == 0:
        return out.zero_()
    lane.run(matmul, a, b, out, out.shape[1] % 8 == 0)
    return out
