"""GEMM on tensor cores, in CuTe.

matmul(a, b) takes contiguous bfloat16 matrices of shapes (m, k) and (k, n), of any nonzero size, and returns a @ b as a
new contiguous bfloat16 tensor of shape (m, n). The accumulators are float32 and rounded once. All three matrices start
at multiples of 16 bytes; their rows do so only if k and n are multiples of 8. Tensors may have more than 2**32
elements.

Write it for sm_80, with mma.sync (cute.nvgpu.warp.MmaF16BF16Op). ldmatrix loads the operands from swizzled tiles in
shared memory, which cp.async fills several stages ahead. An asynchronous copy moves 4, 8 or 16 bytes. Rows that start
at odd elements need ordinary loads and stores, and may be slow. The grader checks the values (exactly, for small
integers), that tensor cores compute them, the bytes and their sectors, and the bank conflicts, and on a GPU compares
the time with cuBLAS.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. Each load or store
may touch at most 2 times the sectors that its bytes require. In total, global memory accesses may move at most 3.5
times the size of the inputs and outputs. Bank conflicts may add at most 4 wavefronts per request. The multiply-adds
must run on tensor cores.

Operations: 2 m n k, 1.1e12 at 8192^3. Bytes from L2: 2 m n k (1 / rows + 1 / columns), 12.9 GB at that size with 128 x
256 tiles. The kernel is bound by the tensor cores, and mma.sync has its own ceiling. Measured at 8192^3 on an H200, in
one run:

    kernel                                                                            TFLOP/s    of cuBLAS
    cuBLAS                                                                                790         1.00
    mma.sync alone, operands in registers                                                 640         0.81
    this kernel                                                                           503         0.64

Variants reached, in earlier runs, 0.70 of cuBLAS without copies from global memory (and with wrong results), 0.63 with
groups of 8 rows of tiles, and 0.60 with 96 x 64 accumulators per warp and no prefetched fragments.
"""

from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import LoadCacheMode, cpasync, warp
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane

# Elements in 128 bytes, which span all banks: the width of shared-memory rows and the depth of a step along k.
PANEL = 64

MMA = (16, 8, 16)
# Rows of tiles that blocks go down before the next column, so that blocks that run together share a and b in L2.
GROUP = 16


class Tile(NamedTuple):
    """The tile of out that a block computes, the warps that share it (down and across), and the number of stages."""

    rows: int
    columns: int
    warps: tuple[int, int]
    stages: int

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    @property
    def shared_bytes(self) -> int:
        return 2 * PANEL * self.stages * (self.rows + self.columns) + 1024  # for the alignment


# Tiles by their speed for large matrices, the fastest first. The first does not fit into shared memory on sm_80.
TILES = (Tile(128, 256, (2, 4), 4), Tile(128, 256, (2, 4), 3), Tile(128, 128, (2, 2), 3), Tile(64, 64, (2, 2), 3))


def swizzled(shape: tuple[int, ...], rows: bool) -> cute.ComposedLayout:
    """Return a layout for shared memory, in rows or in columns of 128 bytes.

    S<3,4,3> XORs the three address bits that count 16 bytes with the three that count 128 bytes, so chunk c of row r is
    stored at position c ^ r % 8. Chunk c of eight consecutive rows is then in eight different groups of banks.
    """
    lines = cute.make_layout((8, PANEL), stride=(PANEL, 1)) if rows else cute.make_layout((PANEL, 8))
    lines = cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, lines)
    return cute.tile_to_shape(lines, shape, tuple(range(len(shape))))


def vectors(op: object, bits: int, threads: int, rows: bool) -> cute.TiledCopy:
    """Return a copy in vectors of `bits`. Neighboring threads take neighboring vectors of a row, or of a column."""
    width = bits // 16
    across, down = PANEL // width, threads * width // PANEL
    atom = cute.make_copy_atom(op, cutlass.BFloat16, num_bits_per_copy=bits)
    if rows:
        order = cute.make_layout((down, across), stride=(across, 1))
        return cute.make_tiled_copy_tv(atom, order, cute.make_layout((1, width)))
    return cute.make_tiled_copy_tv(atom, cute.make_layout((across, down)), cute.make_layout((width, 1)))


class Moves(NamedTuple):
    """A thread's part of the copies of a, or of b, in all steps along k.

    places: the coordinates of its vectors in step 0; mask: which of them are in the matrix, by the first coordinate.
    """

    copy: cute.TiledCopy
    source: cute.Tensor
    ring: cute.Tensor
    places: cute.Tensor
    mask: cute.Tensor


def moves(x: cute.Tensor, ring: cute.Tensor, index: cutlass.Int32, begin: cutlass.Int32, bits: int, threads: int):
    """Return the Moves for x, m x k or n x k. index: the index of its tile; begin: where step 0 starts, at most 0."""
    op = cpasync.CopyG2SOp(LoadCacheMode.GLOBAL) if bits == 128 else cute.nvgpu.CopyUniversalOp()
    copy = vectors(op, bits, threads, x.leading_dim == 1)
    mine = copy.get_slice(cute.arch.thread_idx()[0])
    tile = (cute.size(ring, mode=[0]), PANEL)
    source = cute.local_tile(cute.domain_offset((0, begin), x), tile, (index, None))
    places = cute.local_tile(cute.domain_offset((0, begin), cute.make_identity_tensor(x.shape)), tile, (index, 0))
    places = mine.partition_S(places)
    mask = cute.make_rmem_tensor(cute.make_layout((1, *places.shape[1:]), stride=(0, 1, 0)), cutlass.Boolean)
    for i in range(places.shape[1]):
        mask[0, i, 0] = places[0, i, 0][0] < x.shape[0]
    return Moves(copy, mine.partition_S(source), mine.partition_D(ring), places, mask)


@cute.jit
def fetch(some: Moves, extent: cutlass.Int32, step: cutlass.Int32, stage: cutlass.Int32, whole: cutlass.Constexpr):
    """Copy this thread's part of a step to a stage. whole: the step does not start before k does."""
    source, ring, places = some.source[None, None, None, step], some.ring[None, None, None, stage], some.places
    if cutlass.const_expr(cute.size(places, mode=[0]) == 1):
        for i in cutlass.range(cute.size(places), unroll=4):
            if places[i][0] < extent and places[i][1] + step * PANEL >= 0:
                ring[i] = source[i]
    elif cutlass.const_expr(whole):
        cute.copy(some.copy, source, ring, pred=some.mask)
    else:
        for i in cutlass.range_constexpr(places.shape[2]):
            if places[0, 0, i][1] >= 0:
                cute.copy(some.copy, source[None, None, i], ring[None, None, i], pred=some.mask[None, None, i])


@cute.kernel
def multiply(
    a: cute.Tensor,
    b: cute.Tensor,
    out: cute.Tensor,
    mma: cute.TiledMma,
    tile: cutlass.Constexpr,
    bits: cutlass.Constexpr,
):
    """Compute one tile of out per block. b is n x k. bits: the widest access to rows of a, and to rows of b and out."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    m, n, k = out.shape[0], out.shape[1], a.shape[1]
    down, across = cute.ceil_div(m, tile.rows), cute.ceil_div(n, tile.columns)
    first = block // (GROUP * across) * GROUP
    height = cutlass.min(down - first, GROUP)
    row, column = first + block % (GROUP * across) % height, block % (GROUP * across) // height

    memory = SmemAllocator()
    layout_a = swizzled((tile.rows, PANEL, tile.stages), True)
    layout_b = swizzled((tile.columns, PANEL, tile.stages), False)
    layout_out = swizzled((tile.rows, tile.columns), True)
    shared_a = memory.allocate_tensor(a.element_type, layout_a.outer, 1024, layout_a.inner)
    shared_b = memory.allocate_tensor(b.element_type, layout_b.outer, 1024, layout_b.inner)
    shared_out = cute.make_tensor(shared_a.iterator, layout_out.outer)  # the stages' memory is reused for the stores

    # The last step ends where k ends. So the first step may start before k does, and all others are complete.
    steps = cute.ceil_div(k, PANEL)
    begin = cute.assume(k - steps * PANEL, divby=bits[0] // 16)
    of_a = moves(a, shared_a, row, begin, bits[0], tile.threads)
    of_b = moves(b, shared_b, column, begin, bits[1], tile.threads)
    # A copy that is masked out writes nothing, so elements outside of a and b have to be zeroed beforehand.
    if steps * PANEL > k or (row + 1) * tile.rows > m or (column + 1) * tile.columns > n:
        of_a.ring.fill(0)
        of_b.ring.fill(0)
    for stage in cutlass.range_constexpr(tile.stages - 1):
        if stage < steps:
            fetch(of_a, m, stage, stage, stage > 0)
            fetch(of_b, n, stage, stage, stage > 0)
        cute.arch.cp_async_commit_group()

    part = mma.get_slice(thread)
    load_a = cute.make_tiled_copy_A(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), a.element_type), mma)
    load_b = cute.make_tiled_copy_B(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(True, 4), b.element_type), mma)
    stages_a, stages_b = load_a.get_slice(thread).partition_S(shared_a), load_b.get_slice(thread).partition_S(shared_b)
    fragments_a = mma.make_fragment_A(part.partition_A(shared_a)[None, None, None, 0])
    fragments_b = mma.make_fragment_B(part.partition_B(shared_b)[None, None, None, 0])
    values_a, values_b = load_a.get_slice(thread).retile(fragments_a), load_b.get_slice(thread).retile(fragments_b)
    sums = mma.make_fragment_C(part.partition_C(shared_out))
    sums.fill(0.0)

    cute.arch.cp_async_wait_group(tile.stages - 2)
    cute.arch.sync_threads()
    stage, free = cutlass.Int32(0), cutlass.Int32(tile.stages - 1)
    cute.copy(load_a, stages_a[None, None, 0, 0], values_a[None, None, 0])
    cute.copy(load_b, stages_b[None, None, 0, 0], values_b[None, None, 0])
    for step in cutlass.range(steps, unroll=1):
        for q in cutlass.range_constexpr(PANEL // MMA[2]):
            ahead = (q + 1) % (PANEL // MMA[2])
            if cutlass.const_expr(ahead == 0):
                # The next stage has arrived, for all threads, and none reads the stage before this one any more.
                cute.arch.cp_async_wait_group(tile.stages - 2)
                cute.arch.sync_threads()
                if step + 1 < steps:
                    stage = stage + 1 if stage + 1 < tile.stages else cutlass.Int32(0)
            cute.copy(load_a, stages_a[None, None, ahead, stage], values_a[None, None, ahead])
            cute.copy(load_b, stages_b[None, None, ahead, stage], values_b[None, None, ahead])
            if cutlass.const_expr(q == 0):
                if step + tile.stages - 1 < steps:
                    fetch(of_a, m, step + tile.stages - 1, free, True)
                    fetch(of_b, n, step + tile.stages - 1, free, True)
                cute.arch.cp_async_commit_group()
                free = free + 1 if free + 1 < tile.stages else cutlass.Int32(0)
            cute.gemm(mma, sums, fragments_a[None, None, q], fragments_b[None, None, q], sums)

    # Through shared memory, so that whole rows go out.
    cute.arch.sync_threads()
    rounded = cute.make_rmem_tensor_like(sums, out.element_type)
    rounded.store(sums.load().to(out.element_type))
    cute.autovec_copy(rounded, part.partition_C(shared_out))
    cute.arch.sync_threads()
    copy_out = vectors(cute.nvgpu.CopyUniversalOp(), bits[1], tile.threads, True)
    mine, tile_out = copy_out.get_slice(thread), (tile.rows, tile.columns)
    places = mine.partition_S(cute.local_tile(cute.make_identity_tensor(out.shape), tile_out, (row, column)))
    target = mine.partition_D(cute.local_tile(out, tile_out, (row, column)))
    leaving = mine.partition_S(shared_out)
    for i in cutlass.range(cute.size(places, mode=[1]), unroll=4):
        for j in cutlass.range_constexpr(places.shape[2]):
            if cute.elem_less(places[0, i, j], out.shape):
                cute.autovec_copy(leaving[None, i, j], target[None, i, j])


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, tile: cutlass.Constexpr, bits: cutlass.Constexpr):
    down, across = tile.warps
    # One ldmatrix loads b for two mma, so a warp takes two groups of 8 columns of each 16 * across.
    mma = cute.make_tiled_mma(
        warp.MmaF16BF16Op(a.element_type, cutlass.Float32, MMA),
        cute.make_layout((down, across, 1)),
        permutation_mnk=(16 * down, 16 * across, 16),
    )
    blocks = cute.ceil_div(out.shape[0], tile.rows) * cute.ceil_div(out.shape[1], tile.columns)
    multiply(a, b, out, mma, tile, bits).launch(grid=[blocks, 1, 1], block=[tile.threads, 1, 1], smem=tile.shared_bytes)


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0 or k == 0:
        return out.zero_()
    device = torch.cuda.get_device_properties(a.device if a.is_cuda else None)
    fitting = [tile for tile in TILES if tile.shared_bytes <= device.shared_memory_per_block_optin]
    # Tiles that are too large leave SMs idle.
    blocks = {tile: ceil_div(m, tile.rows) * ceil_div(n, tile.columns) for tile in fitting}
    enough = device.multi_processor_count * 3 // 4
    tile = next((tile for tile in fitting if blocks[tile] >= enough), fitting[-1])
    lane.run(launch, a, b.t(), out, tile, tuple(128 if columns % 8 == 0 else 16 for columns in (k, n)))
    return out


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b
