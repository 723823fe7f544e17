"""Copy a matrix with the TMA unit.

tma_copy(x) takes a matrix of float32 or bfloat16 with fewer than 2**31 elements and returns a contiguous copy. Its
rows, its address and the distance between its rows are multiples of 16 bytes. x may be some columns of a wider matrix,
so its row stride may exceed the length of a row.

One thread requests a box of the matrix from the TMA unit, which copies it to shared memory. The unit computes the
addresses, checks the bounds, and writes zeros for elements outside the matrix. An mbarrier reports when the box has
arrived. A second copy stores the box in the result, where the unit skips elements outside the matrix. No element passes
through a register.

Start with one box per block. Then give a block several boxes and a circular buffer, so that loads run ahead. Warp 0
loads, warp 1 stores, and each stage has two mbarriers, full and empty. The grader checks that the copy is bitwise
equal, counts the bytes that TMA moves, and on a GPU compares the time with PyTorch's copy.

The grader enforces these limits on the largest case (rows=160 columns=2176 beside=0 dtype=float32); smaller cases get
some slack for partial tiles. In total, global memory accesses may move at most 1.05 times the size of the inputs and
outputs. At least 95% of the global memory traffic must go through TMA.
"""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane

WARP = 32
ROWS, ROW_BYTES = 16, 512  # the size of a box
STAGES = 3
LAG = 1  # stores that may still be reading their stages when the next one is issued
BOXES = 4  # per block


@cute.kernel
def copy_kernel(load: cute.CopyAtom, src: cute.Tensor, store: cute.CopyAtom, dst: cute.Tensor, ring: cute.Layout):
    """Load boxes in warp 0 and store them in warp 1. ring: (row, column, stage) -> offset in the circular buffer.

    Box n of a block uses stage n % STAGES, in the phase n // STAGES of both mbarriers of the stage.
    """
    # TODO: shared memory for the mbarriers and the stages; initialize the mbarriers, synchronize
    # TODO: (no mbarrier_init_fence is needed, nor checked: it is for the other blocks of a cluster)
    # TODO: partition ring and matrices, count this block's boxes; then the loops of warp 0 and of warp 1


@cute.jit
def place(box: cutlass.Int32, tiles_n: cutlass.Int32):
    """Return the row and the column of a box. The boxes in flight are neighbors, row by row."""
    return box // tiles_n, box % tiles_n


@cute.jit
def partition(atom: cute.CopyAtom, stages: cute.Tensor, matrix: cute.Tensor, box: cutlass.Constexpr):
    """Return the stages and the boxes of the matrix, by row and column, in the form that the atom expects."""
    boxes = cute.zipped_divide(matrix, box)
    return cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(stages, 0, 2), boxes)


@cute.jit
def copy(src: cute.Tensor, dst: cute.Tensor):
    """Create a tensor map for each side, and launch a block for every BOXES boxes."""
    columns = cutlass.const_expr(ROW_BYTES * 8 // src.element_type.width)
    ring = cute.make_ordered_layout((ROWS, columns, STAGES), order=(1, 0, 2))
    box = cute.select(ring, mode=[0, 1])
    # TODO: make an atom with its tensor map for either side, and launch copy_kernel


def tma_copy(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("TODO: write the kernel and its launch, then delete this line")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    lane.run(copy, x, out)
    return out
