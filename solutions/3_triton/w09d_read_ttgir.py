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

import itertools
import math
import re
from pathlib import Path

BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2, "i8": 1}
TENSOR = re.compile(r"tensor<([\dx]+)x([^\dx,][^,]*), (?:#ttg\.slice<\{dim = (\d+), parent = (#\w+)\}>|(#\w+))>")


def report(dump: Path) -> dict:
    """Return the facts about the layouts in this file, by name."""
    text = dump.read_text()
    layouts = {}
    for name, fields in re.findall(r"^(#\w+) = #ttg\.blocked<\{(.*)\}>", text, re.M):
        lists = re.findall(r"(\w+) = \[([\d, ]+)\]", fields)
        layouts[name] = {field: [int(number) for number in numbers.split(",")] for field, numbers in lists}
    accesses, conversions = [], []
    for line in text.splitlines():
        tensors = [match.groups() for match in TENSOR.finditer(line)]
        if "ttg.convert_layout" in line:
            conversions.append(tensors)
        elif "tt.load" in line or "tt.store" in line:
            accesses.append(holders(tensors[0], layouts))
    return {
        "threads": math.prod(
            int(re.search(rf'"ttg\.{name}" = (\d+)', text)[1]) for name in ("num-warps", "threads-per-warp")
        ),
        "held": [len(held[0, 0]) for held in accesses],
        "owners": [sum(0 in elements for elements in held.values()) for held in accesses],
        "lane_1": [min(held[0, 1]) for held in accesses],
        "last_warp": [min(held[max(held)[0], 0]) for held in accesses],
        "bytes": [math.prod(map(int, source[0].split("x"))) * BYTES[source[1]] for source, _ in conversions],
        "moves": [distance(holders(source, layouts), holders(target, layouts)) for source, target in conversions],
    }


def holders(tensor: tuple, layouts: dict) -> dict:
    """Return the elements that each thread holds, as a set for each (warp, lane)."""
    sizes, _, removed, parent, name = tensor
    layout = layouts[parent or name]
    shape = [int(size) for size in sizes.split("x")]
    if removed:
        shape.insert(int(removed), 1)
    size, lanes, warps, order = (layout[f] for f in ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order"))
    held = {}
    for warp, lane in itertools.product(range(math.prod(warps)), range(math.prod(lanes))):
        places, rest_of_warp, rest_of_lane = [()] * len(shape), warp, lane
        for dim in order:
            rest_of_warp, at_warp = divmod(rest_of_warp, warps[dim])
            rest_of_lane, at_lane = divmod(rest_of_lane, lanes[dim])
            first = (at_warp * lanes[dim] + at_lane) * size[dim]
            block = size[dim] * lanes[dim] * warps[dim]
            repeats = range(0, max(block, shape[dim]), block)
            places[dim] = {(first + repeat + k) % shape[dim] for repeat in repeats for k in range(size[dim])}
        held[warp, lane] = {math.prod(shape[1:]) * place[0] + sum(place[1:]) for place in itertools.product(*places)}
    return held


def distance(before: dict, after: dict) -> str:
    """Return how far values move between two layouts."""
    if all(after[thread] <= before[thread] for thread in after):
        return "registers"
    warps = {warp: set() for warp, _ in before}
    for (warp, _), elements in before.items():
        warps[warp] |= elements
    return "lanes" if all(elements <= warps[warp] for (warp, _), elements in after.items()) else "warps"
