"""Provide GEMMs by mma.sync in CuTe, each one idea short of the reference, which a notebook counts and times.

Notebooks do not print them, because they solve stars of an exercise. Sizes are multiples of the tile.
"""

# The DSL's kernels are traced, not run: while they are, its names are not what they are declared to be.
# mypy: disable-error-code="name-defined, union-attr, index, attr-defined, operator, arg-type, no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import LoadCacheMode, cpasync, warp
from cutlass.memory import SmemAllocator

from warpcheck.frontends import cute as lane

DEPTH = 64
GROUP = 8
"""The rows of tiles that consecutive blocks go down before the next column, while its tiles of b are in L2."""


class Rung(NamedTuple):
    """The features of a GEMM. A block computes rows x columns with warps[0] x warps[1] warps.

    Attributes:
        asynchronous: Copy tiles by cp.async, not through registers.
        swizzled: Swizzle the rows of the tiles.
        stages: The stages of the ring.
        ahead: Load the fragments of a k-step of 16 while the previous step is multiplied.
    """

    rows: int = 128
    columns: int = 128
    warps: tuple[int, int] = (2, 2)
    asynchronous: bool = False
    swizzled: bool = False
    stages: int = 1
    ahead: bool = False


def _tile(rung: Rung, extent: int, by_k: bool):
    """Return the layout of a's or b's tiles in shared memory: rows of 128 bytes along k, or across k."""
    shape, stride = ((8, 64), (64, 1)) if by_k else ((64, 8), (1, 64))
    swizzle = cute.make_swizzle(3 if rung.swizzled else 0, 4, 3)
    atom = cute.make_composed_layout(swizzle, 0, cute.make_layout(shape, stride=stride))
    return cute.tile_to_shape(atom, (extent, DEPTH, rung.stages), (0, 1, 2))


def _vectors(op, dtype, threads: int, by_rows: bool):
    """Return a tiled copy in which eight threads take the 16-byte vectors of 64 contiguous elements."""
    atom = cute.make_copy_atom(op, dtype, num_bits_per_copy=128)
    if by_rows:
        return cute.make_tiled_copy_tv(
            atom, cute.make_layout((threads // 8, 8), stride=(8, 1)), cute.make_layout((1, 8))
        )
    return cute.make_tiled_copy_tv(atom, cute.make_layout((8, threads // 8)), cute.make_layout((8, 1)))


def _fetch(step, stage, *moves) -> None:
    for copy, source, target in moves:
        cute.copy(copy, source[None, None, None, step], target[None, None, None, stage])


def _take(stage, q, *moves) -> None:
    for load, rows, values in moves:
        cute.copy(load, rows[None, None, q, stage], values[None, None, q])


@cute.kernel
def _multiply(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, mma: cute.TiledMma, rung: cutlass.Constexpr) -> None:
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    down = out.shape[0] // rung.rows
    across = out.shape[1] // rung.columns
    first = block // (GROUP * across) * GROUP
    height = cutlass.min(down - first, GROUP)
    row = first + block % (GROUP * across) % height
    column = block % (GROUP * across) // height

    memory = SmemAllocator()
    dtype = a.element_type
    threads = 32 * rung.warps[0] * rung.warps[1]
    of_a = _tile(rung, rung.rows, True)
    of_b = _tile(rung, rung.columns, False)
    shared_a = memory.allocate_tensor(dtype, of_a.outer, 1024, of_a.inner)
    shared_b = memory.allocate_tensor(dtype, of_b.outer, 1024, of_b.inner)

    op = cpasync.CopyG2SOp(LoadCacheMode.GLOBAL) if rung.asynchronous else cute.nvgpu.CopyUniversalOp()
    copy_a = _vectors(op, dtype, threads, True)
    copy_b = _vectors(op, dtype, threads, False)
    mine_a = copy_a.get_slice(thread)
    mine_b = copy_b.get_slice(thread)
    from_a = mine_a.partition_S(cute.local_tile(a, (rung.rows, DEPTH), (row, None)))
    from_b = mine_b.partition_S(cute.local_tile(b, (rung.columns, DEPTH), (column, None)))
    to_a = mine_a.partition_D(shared_a)
    to_b = mine_b.partition_D(shared_b)

    part = mma.get_slice(thread)
    load_a = cute.make_tiled_copy_A(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), dtype), mma)
    load_b = cute.make_tiled_copy_B(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(True, 4), dtype), mma)
    rows_a = load_a.get_slice(thread).partition_S(shared_a)
    rows_b = load_b.get_slice(thread).partition_S(shared_b)
    fragments_a = mma.make_fragment_A(part.partition_A(shared_a)[None, None, None, 0])
    fragments_b = mma.make_fragment_B(part.partition_B(shared_b)[None, None, None, 0])
    values_a = load_a.get_slice(thread).retile(fragments_a)
    values_b = load_b.get_slice(thread).retile(fragments_b)
    part_out = part.partition_C(cute.local_tile(out, (rung.rows, rung.columns), (row, column)))
    total = mma.make_fragment_C(part_out)
    total.fill(0.0)

    steps = cute.size(from_a, mode=[3])
    ahead = rung.stages - 1
    for stage in cutlass.range_constexpr(ahead):
        _fetch(stage, stage, (copy_a, from_a, to_a), (copy_b, from_b, to_b))
        cute.arch.cp_async_commit_group()
    if cutlass.const_expr(rung.ahead):
        cute.arch.cp_async_wait_group(rung.stages - 2)
        cute.arch.sync_threads()
        _take(0, 0, (load_a, rows_a, values_a), (load_b, rows_b, values_b))
    for step in cutlass.range(steps, unroll=1):
        stage = step % rung.stages
        if cutlass.const_expr(not rung.ahead):
            if cutlass.const_expr(rung.stages == 1):
                cute.arch.sync_threads()
                _fetch(step, 0, (copy_a, from_a, to_a), (copy_b, from_b, to_b))
                cute.arch.cp_async_commit_group()
            # cp.async.wait_group waits for the copies of its own thread. The barrier after it makes the copies of all
            # threads visible. Source: PTX ISA, "cp.async.wait_group".
            cute.arch.cp_async_wait_group(max(rung.stages - 2, 0))
            cute.arch.sync_threads()
        for q in cutlass.range_constexpr(DEPTH // 16):
            if cutlass.const_expr(not rung.ahead):
                _take(stage, q, (load_a, rows_a, values_a), (load_b, rows_b, values_b))
            elif cutlass.const_expr(q < DEPTH // 16 - 1):
                _take(stage, q + 1, (load_a, rows_a, values_a), (load_b, rows_b, values_b))
            else:
                cute.arch.cp_async_wait_group(rung.stages - 2)
                cute.arch.sync_threads()
                _take(
                    cutlass.min(step + 1, steps - 1) % rung.stages,
                    0,
                    (load_a, rows_a, values_a),
                    (load_b, rows_b, values_b),
                )
            if cutlass.const_expr(q == 0 and rung.stages > 1):
                if step + ahead < steps:
                    filled = (step + ahead) % rung.stages
                    _fetch(step + ahead, filled, (copy_a, from_a, to_a), (copy_b, from_b, to_b))
                # The last steps commit empty groups, so that wait_group counts as many groups as in the other steps.
                cute.arch.cp_async_commit_group()
            cute.gemm(mma, total, fragments_a[None, None, q], fragments_b[None, None, q], total)

    rounded = cute.make_rmem_tensor_like(total, out.element_type)
    rounded.store(total.load().to(out.element_type))
    cute.autovec_copy(rounded, part_out)


@cute.jit
def _launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, rung: cutlass.Constexpr) -> None:
    down, across = rung.warps
    mma = cute.make_tiled_mma(
        warp.MmaF16BF16Op(a.element_type, cutlass.Float32, (16, 8, 16)),
        cute.make_layout((down, across, 1)),
        # A warp takes 16 columns, those of two mma, so that one ldmatrix of four 8 x 8 matrices loads b for both.
        permutation_mnk=(16 * down, 16 * across, 16),
    )
    blocks = (out.shape[0] // rung.rows) * (out.shape[1] // rung.columns)
    # 1024 bytes more than the tiles need, because the tiles begin at a multiple of 1024 bytes.
    shared = 2 * rung.stages * DEPTH * (rung.rows + rung.columns) + 1024
    _multiply(a, b, out, mma, rung).launch(grid=[blocks, 1, 1], block=[32 * down * across, 1, 1], smem=shared)


def product(a: torch.Tensor, b: torch.Tensor, rung: Rung) -> torch.Tensor:
    """Multiply contiguous bfloat16 matrices (m, k) and (k, n), whose sizes are multiples of the tile and 64."""
    out = a.new_empty(a.shape[0], b.shape[1])
    lane.run(_launch, a, b.t(), out, rung)
    return out
