"""Reading TTGIR: which thread holds which element.

report(dump) reads Triton's representation of a kernel after layouts are chosen (TTGIR), as in `compiled.asm["ttgir"]`
but without source locations. In such a file

- the module's line has the attributes "ttg.num-warps" and "ttg.threads-per-warp";
- `#blocked = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>`
  gives a layout a name. Each list has a number for each dimension of a tensor;
- `%3 = tt.load %2 : tensor<64x32x!tt.ptr<f32>, #blocked>` loads a tensor through pointers with this layout, and
  `tt.store %2, %4 : tensor<64x32x!tt.ptr<f32>, #blocked>` stores one. Masks may follow the operands;
- `%5 = ttg.convert_layout %4 : tensor<64x32xf32, #blocked> -> tensor<64x32xf32, #blocked1>` moves values to the threads
  that hold them in another layout. Element types are f64, i64, f32, i32, f16, bf16, i16, and i8;
- `#ttg.slice<{dim = 1, parent = #blocked}>` instead of a layout's name: the tensor has one dimension, namely the
  dimension of the parent that is not `dim`. The tensor is held as if it had an extent of 1 in dimension `dim` of
  the parent.

In a blocked layout, a thread holds sizePerThread consecutive elements in each dimension. The threads of a warp form a
grid of threadsPerWarp, and the warps form a grid of warpsPerCTA. Both are numbered along order[0] first. If a tensor
has more elements in a dimension than this block of threads holds, the block is repeated, and each thread holds more
elements. If a tensor has fewer, indices beyond its end are taken modulo its extent, so several threads hold the same
element. All extents are powers of two.

results/traces/ttgir contains such files, each compressed with gzip; report gets a file as plain text. The report is a
dict:

    threads   the number of threads in a block
    held      for each load and store, in order: how many elements of the tensor a thread holds, each counted once
    owners    for each load and store: the number of threads that hold each element
    lane_1    for each load and store: the first element of lane 1 of warp 0. Elements are numbered row by row, from 0
    last_warp for each load and store: the first element of lane 0 of the last warp
    bytes     for each convert_layout, in order: the number of bytes in the tensor's values
    moves     for each convert_layout, the first of these that is true:
              "registers"  each thread already holds all of its new elements
              "lanes"      each new element of a thread is held by some thread of its own warp
              "warps"      some new element comes from another warp

Where an element has several owners, Triton itself may move it further than necessary.
"""

from pathlib import Path


def report(dump: Path) -> dict:
    """Return the facts about the layouts in this file, by name."""
    raise NotImplementedError("TODO: read the layouts, and find out who holds which element")
