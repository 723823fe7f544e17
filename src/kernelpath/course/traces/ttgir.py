"""Parse Triton's TTGIR: who holds which element of a tensor, and what a conversion between two layouts has to move.

A layout maps the registers of each thread to elements of a tensor (Triton's TritonGPUAttrDefs.td). Two kinds are
parsed: `#ttg.blocked`, and `#ttg.slice` of one, in which a tensor has lost a dimension.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelpath.course.traces import Facts, Malformed

# The bits of an element. A pointer has 64.
BITS: Mapping[str, int] = {"f64": 64, "i64": 64, "f32": 32, "i32": 32, "f16": 16, "bf16": 16, "i16": 16, "i8": 8}

# The distance that a conversion moves values: within a thread, within a warp, or between warps.
REGISTERS, LANES, WARPS = "registers", "lanes", "warps"
_DISTANCES = (REGISTERS, LANES, WARPS)

_ALIAS = re.compile(r"^#(\w+) = #ttg\.blocked<\{(.*)\}>", re.M)
_FIELD = re.compile(r"(\w+) = \[([\d, ]+)\]")
_MODULE = re.compile(r'"ttg\.num-warps" = (\d+) : i32.*"ttg\.threads-per-warp" = (\d+) : i32')

# Matches `tensor<32x64xf32, #blocked>` and `tensor<32xf32, #ttg.slice<{dim = 1, parent = #blocked}>>`.
_TENSOR = re.compile(r"tensor<((?:\d+x)+)([^,]+), (#ttg\.slice<\{dim = (\d+), parent = (#\w+)\}>|#\w+)>")

# Which elements each thread holds: [warps, lanes, elements].
Owned = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Blocked:
    """A blocked layout: elements per thread, threads per warp, and warps, by dimension; order has the fastest first."""

    per_thread: tuple[int, ...]
    threads: tuple[int, ...]
    warps: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """Return the shape that all threads hold at once. A larger block repeats it, a smaller one is replicated."""
        return tuple(map(math.prod, zip(self.per_thread, self.threads, self.warps, strict=True)))

    def lanes(self, shape: tuple[int, ...]) -> Indices:
        """Return the lane that holds each element, the first if there are several."""
        return self._numbered(shape, self.per_thread, self.threads)

    def warps_of(self, shape: tuple[int, ...]) -> Indices:
        """Return the warp that holds each element, the first if there are several."""
        steps = tuple(map(math.prod, zip(self.per_thread, self.threads, strict=True)))
        return self._numbered(shape, steps, self.warps)

    def owners(self, shape: tuple[int, ...]) -> Indices:
        """Return the thread that holds each element, numbered over the program."""
        return 32 * self.warps_of(shape) + self.lanes(shape)

    def held(self, shape: tuple[int, ...]) -> int:
        """Return the registers per thread for a block, including elements that other threads hold as well."""
        # The layout's block of elements repeats until it covers the tensor.
        repeats = [max(1, -(-size // extent)) for size, extent in zip(shape, self.extent, strict=True)]
        return math.prod(repeats) * math.prod(map(min, self.per_thread, shape))

    def _numbered(self, shape: tuple[int, ...], step: tuple[int, ...], count: tuple[int, ...]) -> Indices:
        """Number each element, in `order`, by its index among `count` positions that are `step` apart."""
        number = np.zeros(shape, np.int64)
        stride = 1
        for dim in self.order:
            index = np.arange(shape[dim]) // step[dim] % count[dim]
            number += stride * index.reshape([-1 if axis == dim else 1 for axis in range(len(shape))])
            stride *= count[dim]
        return number


@dataclass(frozen=True)
class Tensor:
    """The type of a tensor. In a slice, `removed` is the dimension of the layout that the tensor does not have."""

    shape: tuple[int, ...]
    element: str
    layout: Blocked
    removed: int | None = None

    @property
    def nbytes(self) -> int:
        bits = 64 if self.element.startswith("!tt.ptr") else BITS[self.element]
        return math.prod(self.shape) * bits // 8


def of(text: str) -> Facts:
    """Return the facts of the report. Raises Malformed."""
    module = _MODULE.search(text)
    if module is None:
        raise Malformed("this is not TTGIR: there is no module with ttg.num-warps")
    layouts = blocked_layouts(text)
    accessed = [_tensors(line, layouts)[0] for line in _lines(text, r"= tt\.load|^tt\.store")]
    conversions = [_tensors(line, layouts) for line in _lines(text, r"= ttg\.convert_layout")]
    tables = [owned(tensor) for tensor in accessed]
    return {
        "threads": int(module[1]) * int(module[2]),
        "held": [int(table[0, 0].sum()) for table in tables],
        "owners": [int(table[:, :, 0].sum()) for table in tables],
        "lane_1": [int(table[0, 1].argmax()) for table in tables],
        "last_warp": [int(table[-1, 0].argmax()) for table in tables],
        "bytes": [source.nbytes for source, _ in conversions],
        "moves": [distance(source, target) for source, target in conversions],
    }


def blocked_layouts(text: str) -> dict[str, Blocked]:
    """Return the blocked layouts of a module by name, such as "blocked1"."""
    return {name: _blocked(fields) for name, fields in _ALIAS.findall(text)}


def owned(tensor: Tensor) -> Owned:
    """Return which elements each thread holds.

    A layout whose block of threads is larger than the tensor wraps around, so that several threads hold an element. A
    tensor that is larger than the block is covered by repeating the block, so that a thread holds more elements.
    """
    layout = tensor.layout
    shape = list(tensor.shape)
    if tensor.removed is not None:
        # A slice is its parent's layout on a tensor of extent 1 in the removed dimension.
        shape.insert(tensor.removed, 1)
    warps, lanes = math.prod(layout.warps), math.prod(layout.threads)
    result = np.ones((warps, lanes, 1), dtype=np.bool_)
    for dim, extent in enumerate(shape):
        warp_place = _coordinates(np.arange(warps), layout.warps, layout.order)[dim]
        lane_place = _coordinates(np.arange(lanes), layout.threads, layout.order)[dim]
        # The first element of each lane along this dimension, as if the tensor were as large as the layout's block.
        begin = (warp_place[:, None] * layout.threads[dim] + lane_place) * layout.per_thread[dim]
        block = layout.per_thread[dim] * layout.threads[dim] * layout.warps[dim]
        steps = np.arange(0, max(block, extent), block)[:, None] + np.arange(layout.per_thread[dim])
        in_dim = np.zeros((warps, lanes, extent), dtype=np.bool_)
        # The modulus wraps a layout that is larger than the tensor.
        np.put_along_axis(in_dim, (begin[..., None] + steps.ravel()) % extent, True, axis=2)
        # An element is held if its place in each dimension is.
        result = (result[..., None] & in_dim[:, :, None]).reshape(warps, lanes, -1)
    return result


def distance(source: Tensor, target: Tensor) -> str:
    """Return the shortest distance over which a conversion can get all values: see REGISTERS, LANES and WARPS."""
    before, after = owned(source), owned(target)
    if not (after & ~before).any():
        return REGISTERS
    # What no lane of the warp holds has to come from another warp, through shared memory.
    in_warp = before.any(axis=1, keepdims=True)
    return WARPS if (after & ~in_warp).any() else LANES


def _blocked(fields: str) -> Blocked:
    values = {name: tuple(int(number) for number in numbers.split(",")) for name, numbers in _FIELD.findall(fields)}
    return Blocked(values["sizePerThread"], values["threadsPerWarp"], values["warpsPerCTA"], values["order"])


def _lines(text: str, pattern: str) -> Iterator[str]:
    """Yield the lines of a kind of operation, in order."""
    kind = re.compile(pattern)
    return (line.strip() for line in text.splitlines() if kind.search(line.strip()))


def _tensors(line: str, layouts: Mapping[str, Blocked]) -> list[Tensor]:
    """Return the types of tensors on a line, in order."""
    tensors = []
    for shape, element, layout, dim, parent in _TENSOR.findall(line):
        name = (parent or layout).removeprefix("#")
        if name not in layouts:
            raise Malformed(f"#{name} is not a blocked layout")
        sizes = tuple(int(size) for size in shape.split("x") if size)
        tensors.append(Tensor(sizes, element, layouts[name], int(dim) if dim else None))
    return tensors


def _coordinates(indices: Indices, counts: Sequence[int], order: Sequence[int]) -> Mapping[int, Indices]:
    """Return the places of threads in a grid of threads, or of warps in a grid of warps, by dimension."""
    places = {}
    for dim in order:
        indices, places[dim] = np.divmod(indices, counts[dim])
    return places


def drawn(rng: random.Random, conversions: int) -> str:
    """Return a module with conversions between layouts that are drawn at random, as Triton formats it."""
    warps = rng.choice((1, 2, 4, 8))
    aliases: dict[Blocked, str] = {}
    lines = []
    for number in range(conversions):
        wanted = rng.choice(_DISTANCES)
        pairs = (_draw_pair(rng, warps) for _ in range(30))
        # Two random layouts almost always differ across warps, so pairs are drawn until the wanted distance occurs.
        source, target = next((pair for pair in pairs if distance(*pair) == wanted), _draw_pair(rng, warps))
        types = [_format_tensor(tensor, aliases) for tensor in (source, target)]
        pointers = [text.replace(source.element, f"!tt.ptr<{source.element}>", 1) for text in types]
        lines += [
            f"    %{3 * number} = tt.load %p_{number} : {pointers[0]}",
            f"    %{3 * number + 1} = ttg.convert_layout %{3 * number} : {types[0]} -> {types[1]}",
            f"    tt.store %q_{number}, %{3 * number + 1} : {pointers[1]}",
        ]
    header = [f"{name} = {_format_layout(layout)}" for layout, name in aliases.items()]
    module = f'module attributes {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = {warps} : i32, '
    module += 'ttg.target = "cuda:80", "ttg.threads-per-warp" = 32 : i32} {'
    return "\n".join([*header, module, "  tt.func public @drawn() {", *lines, "    tt.return", "  }", "}", ""])


def _draw_pair(rng: random.Random, warps: int) -> tuple[Tensor, Tensor]:
    """Draw two layouts of one tensor."""
    rank = rng.choice((1, 2, 2))
    shape = tuple(rng.choice((16, 32, 64)) for _ in range(rank)) if rank == 2 else (rng.choice((64, 256, 512)),)
    element = rng.choice(("f32", "f16", "bf16", "i8", "i64"))
    return _draw_tensor(rng, shape, element, warps), _draw_tensor(rng, shape, element, warps)


def _draw_tensor(rng: random.Random, shape: tuple[int, ...], element: str, warps: int) -> Tensor:
    is_slice = len(shape) == 1 and rng.random() < 0.5
    rank = 2 if is_slice else len(shape)
    lanes = 1 << rng.randrange(6) if rank == 2 else 32
    warps_first = 1 << rng.randrange(warps.bit_length()) if rank == 2 else warps
    fast = rng.randrange(rank)
    size = [1] * rank
    size[fast] = rng.choice((1, 2, 4, 8))
    by_rank = (lanes, 32 // lanes)[:rank], (warps_first, warps // warps_first)[:rank]
    order = (fast, 1 - fast)[:rank]
    return Tensor(shape, element, Blocked(tuple(size), *by_rank, order), rng.randrange(2) if is_slice else None)


def _format_tensor(tensor: Tensor, aliases: dict[Blocked, str]) -> str:
    name = aliases.setdefault(tensor.layout, f"#blocked{len(aliases) or ''}")
    layout = name if tensor.removed is None else f"#ttg.slice<{{dim = {tensor.removed}, parent = {name}}}>"
    return f"tensor<{''.join(f'{size}x' for size in tensor.shape)}{tensor.element}, {layout}>"


def _format_layout(layout: Blocked) -> str:
    fields = {
        "sizePerThread": layout.per_thread,
        "threadsPerWarp": layout.threads,
        "warpsPerCTA": layout.warps,
        "order": layout.order,
    }
    return f"#ttg.blocked<{{{', '.join(f'{name} = {list(values)}' for name, values in fields.items())}}}>"
