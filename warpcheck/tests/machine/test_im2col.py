"""Compare tensor copies in im2col mode with a walk over the pixels as the PTX ISA manual, 5.5.4, defines it.

The examples with their results are those of Triton's tutorial 13-conv-im2col, whose authors ran it on Hopper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from machine.boxes import Words
from machine.bulk_kernels import aligned_bytes
from warpcheck import simt
from warpcheck.frontends import cuda
from warpcheck.simt import Fault, FaultKind
from warpcheck.tensor_map import ELEMENT_TYPES, TensorMap, corner_bits, encode_im2col, encode_tiled

FILE = "im2col.cu"
ORDERS = (0, 1, 1_000_003)


@dataclass(frozen=True)
class Column:
    """A batch of images, and a copy of some of their pixels.

    Axes count from C: (C, W, N), (C, W, H, N), or (C, W, H, D, N). Corners and offsets are along W, H and D.
    """

    kind: int
    extents: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    start: tuple[int, ...]
    offsets: tuple[int, ...]
    steps: tuple[int, ...] = (1, 1, 1, 1, 1)
    swizzle: int = 0
    fill: int = 0

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def size(self) -> int:
        return ELEMENT_TYPES[self.kind].bytes

    @property
    def strides(self) -> list[int]:
        """Return the bytes from one element to the next along each axis of the contiguous tensor."""
        return [self.size * int(np.prod(self.extents[:axis])) for axis in range(self.rank)]

    @property
    def nbytes(self) -> int:
        return self.strides[-1] * self.extents[-1]

    @property
    def pitch(self) -> int:
        return (self.channels * self.size, 32, 64, 128)[self.swizzle]

    @property
    def shared(self) -> int:
        return -(-self.pixels * self.pitch // 1024) * 1024

    @property
    def total(self) -> int:
        return self.pixels * self.channels * self.size

    def map(self, address: int) -> bytes:
        shape = self.extents, self.strides[1:], self.lower, self.upper
        modes = 0, self.swizzle, 0, self.fill
        steps = self.steps[: self.rank]
        return encode_im2col(self.kind, address, *shape, self.channels, self.pixels, steps, *modes)

    def walk(self) -> Iterator[list[int]]:
        """Yield the coordinates along W, H, D and N of each pixel, in the order of the copy."""
        *position, image = self.start[1:]
        for _ in range(self.pixels):
            yield [*(p + offset for p, offset in zip(position, self.offsets, strict=True)), image]
            for axis in range(self.rank - 2):
                position[axis] += self.steps[axis + 1]
                if position[axis] <= self.extents[axis + 1] - 1 + self.upper[axis]:
                    break
                position[axis] = self.lower[axis]
            else:
                image += 1

    def places(self) -> Iterator[tuple[int, int | None]]:
        """Yield the offsets of each element: in shared memory, and in the tensor, or None if it is outside."""
        for row, pixel in enumerate(self.walk()):
            for channel in range(self.channels):
                offset = row * self.pitch + channel * self.size
                offset ^= (offset >> 7 & (0, 1, 3, 7)[self.swizzle]) << 4
                coordinate = [self.start[0] + channel, *pixel]
                is_inside = all(0 <= p < extent for p, extent in zip(coordinate, self.extents, strict=True))
                tensor_offset = sum(p * stride for p, stride in zip(coordinate, self.strides, strict=True))
                yield offset, tensor_offset if is_inside else None


SMALL = Column(7, (8, 4, 4, 2), (0, 0), (0, 0), 8, 16, (0, 0, 0, 0), (0, 0))
# The manual's examples, whose tensors have more channels.
MANUAL = [
    Column(6, (64, 14, 9, 64), (-1, -1), (-1, -1), 8, 64, (0, 4, 7, 7), (0, 0)),
    Column(6, (64, 14, 9, 64), (0, 0), (-2, -2), 8, 64, (0, 4, 6, 7), (2, 2)),
    Column(6, (64, 14, 8, 64), (-1, -1), (-1, -1), 16, 32, (0, 5, 6, 7), (1, 1), steps=(1, 2, 2, 1)),
]
CASES = [
    SMALL,
    *MANUAL,
    Column(7, (8, 11, 5), (-3,), (-2,), 8, 20, (0, -3, 0), (0,)),
    Column(7, (8, 11, 5), (-3,), (-2,), 8, 50, (0, 2, 1), (65535,)),
    Column(6, (16, 6, 5, 4, 3), (-1, -2, -3), (0, 1, 2), 8, 200, (8, 5, -2, -3, 1), (0, 2, 31)),
    Column(6, (16, 6, 5, 4, 3), (-1, 0, 0), (-1, -2, -1), 16, 60, (8, 0, 2, 1, 0), (2, 2, 1), steps=(1, 2, 1, 3, 1)),
    # The distance of the start from the lower corner is not a multiple of the step.
    Column(2, (4, 9, 7, 3), (-2, -1), (0, 0), 4, 70, (0, 1, 2, 0), (1, 0), steps=(1, 4, 3, 1)),
    replace(SMALL, fill=1, lower=(-1, -1), upper=(-1, -1), start=(4, -1, -1, -1), pixels=40),
    replace(SMALL, swizzle=1, pixels=32),
    Column(6, (64, 9, 8, 2), (-1, -1), (-1, -1), 64, 128, (0, -1, -1, 0), (2, 1), swizzle=3),
    Column(9, (40, 9, 8, 2), (-1, -1), (-1, -1), 32, 96, (16, 3, -1, 0), (0, 2), steps=(1, 2, 2, 1), swizzle=2),
    replace(SMALL, pixels=1024, extents=(8, 40, 40, 2), start=(0, 39, 39, 0)),
]


HEAD = """
struct alignas(64) Map { unsigned long long opaque[16]; };
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern __shared__ __align__(1024) unsigned char tile[];
"""


def _load(rank: int) -> str:
    coordinates = ", ".join(f"%{3 + n}" for n in range(rank))
    offsets = ", ".join(f"%{3 + rank + n}" for n in range(rank - 2))
    values = [f'"r"(c{n})' for n in range(rank)] + [f'"h"(o{n})' for n in range(rank - 2)]
    return f"""
extern "C" __global__ void load(const __grid_constant__ Map map, unsigned char* out, int n, int bytes,
                                int c0, int c1, int c2, int c3, int c4,
                                unsigned short o0, unsigned short o1, unsigned short o2) {{
  __shared__ __align__(8) unsigned long long bar;
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = 0xEE;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(&bar)) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(at(&bar)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "  // loads
                 "[%0], [%1, {{{coordinates}}}], [%2], {{{offsets}}};"
                 :: "r"(at(tile)), "l"(&map), "r"(at(&bar)), {", ".join(values)} : "memory");
  }}
  asm volatile("{{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra AGAIN; }}"
               :: "r"(at(&bar)) : "memory");
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = tile[i];
}}"""


def _store(rank: int, reduction: str) -> str:
    coordinates = ", ".join(f"%{2 + n}" for n in range(rank))
    values = ", ".join(f'"r"(c{n})' for n in range(rank))
    opcode = f"cp.{'reduce.' * bool(reduction)}async.bulk.tensor.{rank}d.global.shared::cta{reduction}.im2col_no_offs"
    return f"""
extern "C" __global__ void store(const __grid_constant__ Map map, const unsigned char* in, int n,
                                 int c0, int c1, int c2, int c3, int c4) {{
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = in[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("{opcode}.bulk_group [%0, {{{coordinates}}}], [%1];"  // stores
                 :: "l"(&map), "r"(at(tile)), {values} : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
  }}
}}"""


@cache
def compiled(source: str, name: str, architecture: str = "compute_90a") -> simt.Module:
    return simt.load(cuda.compile_kernel(HEAD + source, FILE, name, architecture).ptx, FILE)


def line_of(source: str, mark: str) -> int:
    (line,) = (n for n, line in enumerate((HEAD + source).splitlines(), 1) if line.endswith(f"// {mark}"))
    return line


def as_bytes(name: str, array: Words, **options: Any) -> simt.Buffer:
    return simt.Buffer(name, array.ctypes.data, array.nbytes, 1, dtype="bytes", **options)


def pad_coordinates(values: tuple[int, ...]) -> list[int]:
    return [*values, 0, 0, 0, 0, 0][:5]


def iota(column: Column) -> Words:
    memory = aligned_bytes(column.nbytes)
    # No element is zero, so that only the fill value of pixels outside of the images is.
    memory.view(f"u{column.size}")[:] = np.arange(1, column.nbytes // column.size + 1) % 60000 + 1
    return memory


def load(column: Column, descriptor: bytes | None = None, bytes_promised: int = 0, **options: Any) -> tuple[Any, Words]:
    memory = iota(column)
    out = np.zeros(column.shared, np.uint8)
    descriptor = column.map(memory.ctypes.data) if descriptor is None else descriptor
    offsets = [*column.offsets, 0, 0, 0][:3]
    args: list[Any] = [
        descriptor,
        out.ctypes.data,
        out.size,
        bytes_promised or column.total,
        *pad_coordinates(column.start),
        *offsets,
    ]
    launch = compiled(_load(column.rank), "load").launch(
        "load",
        grid=(1,),
        block=(64,),
        shared=column.shared,
        args=args,
        **{"buffers": [as_bytes("x", memory), as_bytes("out", out)]} | options,
    )
    return launch, out


def loaded(column: Column) -> Words:
    """Return the contents of shared memory after a load, according to the model."""
    memory = iota(column)
    out = np.full(column.shared, 0xEE, np.uint8)
    outside = np.frombuffer(b"\xf7\x7f" * 4 if column.fill else bytes(8), np.uint8)[: column.size]
    for offset, tensor_offset in column.places():
        out[offset : offset + column.size] = (
            outside if tensor_offset is None else memory[tensor_offset : tensor_offset + column.size]
        )
    return out


@pytest.mark.parametrize("reverse", ORDERS)
def test_a_load_equals_that_of_the_model(reverse: int) -> None:
    for column in CASES:
        launch, out = load(column, reverse=reverse)
        np.testing.assert_array_equal(out, loaded(column), str(column))
        totals = launch.totals
        assert (totals.bulk_load_requests, totals.bulk_load_bytes) == (1, column.total)


TUTORIAL: dict[str, tuple[int, dict[str, Any], list[int]]] = {
    "padded": (
        1,
        {"lower": (-1, -1), "upper": (-1, -1), "start": (0, -1, -1, 0)},
        [0, 0, 0, 0, 0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11],
    ),
    "moved by the offsets": (
        1,
        {"lower": (-1, -1), "upper": (-1, -1), "start": (0, -1, -1, 0), "offsets": (1, 1)},
        list(range(1, 17)),
    ),
    "of two images": (2, {"start": (0, 3, 1, 0)}, list(range(8, 24))),
    "of two images, padded": (
        2,
        {"lower": (-1, -1), "upper": (-1, -1), "start": (0, 2, 1, 0)},
        [7, 0, 9, 10, 11, 0, 0, 0, 0, 0, 17, 18, 19, 0, 21, 22],
    ),
}


@pytest.mark.parametrize("example", TUTORIAL)
def test_examples_of_the_triton_tutorial(example: str) -> None:
    images, options, expected = TUTORIAL[example]
    column = replace(SMALL, extents=(8, 4, 4, images), **options)
    memory = aligned_bytes(column.nbytes)
    memory.view(np.float32)[:] = np.repeat(np.arange(1, 16 * images + 1), 8)
    out = np.zeros(column.shared, np.uint8)
    buffers = [as_bytes("x", memory), as_bytes("out", out)]
    args: list[Any] = [
        column.map(memory.ctypes.data),
        out.ctypes.data,
        out.size,
        column.total,
        *pad_coordinates(column.start),
    ]
    args += [*column.offsets, 0]
    compiled(_load(4), "load").launch("load", grid=(1,), block=(64,), shared=out.size, args=args, buffers=buffers)
    values = out.view(np.float32)[: 16 * 8].reshape(16, 8)
    np.testing.assert_array_equal(values, np.repeat(np.array(expected, np.float32), 8).reshape(16, 8))


STORES = [
    SMALL,
    replace(SMALL, extents=(8, 5, 4, 2), lower=(1, 0), upper=(-1, -1), start=(0, 2, 1, 1), pixels=30),
    replace(SMALL, extents=(8, 9, 9, 2), steps=(1, 2, 3, 1), pixels=20, start=(0, 4, 3, 0)),
    Column(6, (16, 6, 5, 4, 3), (1, 0, 0), (0, -1, 0), 8, 100, (8, 1, 2, 1, 2), (0, 0, 0)),
    Column(6, (64, 9, 2), (0,), (0,), 64, 16, (0, 0, 0), (0,), swizzle=3),
]


@pytest.mark.parametrize("reduction", ["", ".add"])
def test_a_store_writes_only_pixels_inside_the_images(reduction: str) -> None:
    for column in STORES:
        tile = aligned_bytes(column.shared)
        memory = iota(column)
        expected = memory.copy()
        dtype = {6: np.float16, 7: np.float32}[column.kind]
        tile.view(dtype)[:] = np.arange(tile.nbytes // column.size) % 50
        memory.view(dtype)[:] = expected.view(dtype)[:] = np.arange(memory.nbytes // column.size) % 30
        for offset, tensor_offset in column.places():
            if tensor_offset is not None:
                value = tile[offset : offset + column.size].view(dtype)
                target = expected[tensor_offset : tensor_offset + column.size].view(dtype)
                target[:] = target + value if reduction else value
        args: list[Any] = [column.map(memory.ctypes.data), tile.ctypes.data, tile.size, *pad_coordinates(column.start)]
        buffers = [as_bytes("x", memory), as_bytes("tile", tile)]
        compiled(_store(column.rank, reduction), "store").launch(
            "store", grid=(1,), block=(64,), shared=column.shared, args=args, buffers=buffers
        )
        np.testing.assert_array_equal(memory, expected, str(column))


MULTICAST = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) spread(const __grid_constant__ Map map, unsigned char* out) {
  __shared__ __align__(8) unsigned long long bar;
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(at(&bar)) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" :: "r"(at(&bar)) : "memory");
  }
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
  if (rank == 0 && threadIdx.x == 0) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%0, {%1, %1, %1, %1}], {%2, %2};"  // prefetches
                 :: "l"(&map), "r"(0), "h"((unsigned short)0) : "memory");
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %2, %2, %2}], [%3], {%4, %5}, %6;"
                 :: "r"(at(tile)), "l"(&map), "r"(0), "r"(at(&bar)), "h"((unsigned short)1), "h"((unsigned short)2),
                    "h"((unsigned short)3) : "memory");
  }
  asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra AGAIN; }"
               :: "r"(at(&bar)) : "memory");
  for (int i = threadIdx.x; i < 512; i += blockDim.x) out[512 * rank + i] = tile[i];
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}
"""


@pytest.mark.parametrize("reverse", ORDERS)
def test_a_multicast_load_reaches_each_block(reverse: int) -> None:
    column = replace(SMALL, offsets=(1, 2))
    memory = iota(column)
    out = np.zeros(1024, np.uint8)
    compiled(MULTICAST, "spread").launch(
        "spread",
        grid=(2,),
        block=(32,),
        cluster=(2,),
        shared=1024,
        args=[column.map(memory.ctypes.data), out.ctypes.data],
        buffers=[as_bytes("x", memory), as_bytes("out", out)],
        reverse=reverse,
    )
    for part in (out[:512], out[512:]):
        np.testing.assert_array_equal(part, loaded(column)[:512])


def test_an_im2col_prefetch_with_a_tiled_map_is_a_fault() -> None:
    memory = iota(SMALL)
    out = np.zeros(1024, np.uint8)
    with pytest.raises(Fault, match="copies in im2col mode with a tensor map of tiled mode") as caught:
        compiled(MULTICAST, "spread").launch(
            "spread",
            grid=(2,),
            block=(32,),
            cluster=(2,),
            shared=1024,
            args=[TILED, out.ctypes.data],
            buffers=[as_bytes("x", memory), as_bytes("out", out)],
        )
    assert (caught.value.kind, caught.value.line) == (FaultKind.BAD_COPY, line_of(MULTICAST, "prefetches"))


PADDED = replace(SMALL, lower=(-1, -1), upper=(-1, -1))
TILED = encode_tiled(7, 4096, (8, 4, 4, 2), (32, 128, 512), (8, 4, 4, 1), (1, 1, 1, 1))
# The messages about loads that violate a rule. A start outside of the bounding box, for example, happens when the
# filter's offset is added to the coordinates instead of the im2col offsets.
LOADS: dict[str, tuple[Column, dict[str, Any]]] = {
    "copies in im2col mode with a tensor map of tiled mode": (SMALL, {"descriptor": TILED}),
    "from a pixel outside of the map's bounding box": (replace(SMALL, start=(0, 3, 4, 0)), {}),
    "im2col offset that does not fit: it has 16 bits": (replace(SMALL, offsets=(0, 256)), {}),
    "whose innermost coordinate is not a multiple of 16 bytes": (replace(SMALL, start=(1, 0, 0, 0)), {}),
    "of another number of axes": (SMALL, {"descriptor": Column(7, (8, 4, 2), (0,), (0,), 8, 9, (), ()).map(4096)}),
}


@pytest.mark.parametrize("rule", LOADS)
def test_a_load_that_violates_a_rule_is_a_fault(rule: str) -> None:
    column, options = LOADS[rule]
    with pytest.raises(Fault, match=rule) as caught:
        load(column, **options)
    assert (caught.value.kind, caught.value.line) == (FaultKind.BAD_COPY, line_of(_load(4), "loads"))


@pytest.mark.parametrize(
    ("column", "rule"),
    [
        (PADDED, "stores in im2col mode with a bounding box that exceeds the tensor"),
        (replace(SMALL, upper=(1, 0)), "stores in im2col mode with a bounding box that exceeds the tensor"),
        (replace(SMALL, lower=(1, 0)), "from a pixel outside of the map's bounding box"),
    ],
)
def test_a_store_that_violates_a_rule_is_a_fault(column: Column, rule: str) -> None:
    tile = aligned_bytes(column.shared)
    memory = iota(column)
    args: list[Any] = [column.map(memory.ctypes.data), tile.ctypes.data, tile.size, *pad_coordinates(column.start)]
    with pytest.raises(Fault, match=rule) as caught:
        compiled(_store(4, ""), "store").launch(
            "store",
            grid=(1,),
            block=(64,),
            shared=column.shared,
            args=args,
            buffers=[as_bytes("x", memory), as_bytes("tile", tile)],
        )
    assert (caught.value.kind, caught.value.line) == (FaultKind.BAD_COPY, line_of(_store(4, ""), "stores"))


def test_a_tiled_load_with_an_im2col_map_is_a_fault() -> None:
    source = _load(4).replace("global.im2col.", "global.tile.").replace("], {%7, %8};", "];")
    memory = iota(SMALL)
    out = np.zeros(SMALL.shared, np.uint8)
    args: list[Any] = [
        SMALL.map(memory.ctypes.data),
        out.ctypes.data,
        out.size,
        SMALL.total,
        *pad_coordinates(SMALL.start),
        0,
        0,
        0,
    ]
    with pytest.raises(Fault, match="copies a tile with a tensor map of im2col mode"):
        compiled(source, "load").launch(
            "load", grid=(1,), block=(64,), shared=out.size, args=args, buffers=[as_bytes("out", out)]
        )


def test_reading_a_column_before_its_mbarrier_completes_is_a_fault() -> None:
    source = _load(4)
    start = source.index('  asm volatile("{ .reg .pred p; AGAIN')
    source = source[:start] + source[source.index("  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i]") :]
    memory = iota(SMALL)
    out = np.zeros(SMALL.shared, np.uint8)
    args: list[Any] = [
        SMALL.map(memory.ctypes.data),
        out.ctypes.data,
        out.size,
        SMALL.total,
        *pad_coordinates(SMALL.start),
    ]
    with pytest.raises(Fault, match="may still be writing: wait for its mbarrier first") as caught:
        compiled(source, "load").launch(
            "load",
            grid=(1,),
            block=(64,),
            shared=out.size,
            args=[*args, 0, 0, 0],
            buffers=[as_bytes("x", memory), as_bytes("out", out)],
        )
    assert caught.value.kind == FaultKind.UNINITIALIZED
    assert f"line {line_of(source, 'loads')}" in caught.value.message


def test_pixels_outside_the_images_count_at_the_mbarrier() -> None:
    """Pixels outside of the images count as well, so a kernel that expects only the others waits forever."""
    with pytest.raises(simt.TimedOut, match="promises 288 bytes, and 512 have landed: promise those of all copies"):
        load(replace(PADDED, start=(0, -1, -1, 0)), bytes_promised=288)


def test_a_tensor_smaller_than_its_map_is_a_fault() -> None:
    column = replace(SMALL, start=(0, 2, 3, 1))
    memory = iota(column)
    short = as_bytes("x", memory[:-32])
    out = np.zeros(column.shared, np.uint8)
    with pytest.raises(Fault, match="past the end of x") as caught:
        load(column, descriptor=column.map(memory.ctypes.data), buffers=[short, as_bytes("out", out)])
    assert (caught.value.kind, caught.value.line) == (FaultKind.OUT_OF_BOUNDS, line_of(_load(4), "loads"))


def test_an_encoded_map_equals_that_of_the_cute_dsl() -> None:
    """The bytes come from version 4.8 of the DSL, which encodes its maps itself.

    Bit 1 of its flags is left out, and bit 21 with five axes.
    """
    four_axes = "316304000800000070000000f003000000000000000000003f0000000d0000000800000001000000000000000000003f"
    five_axes = "416304000800000070000000f0030000b0130000000000003f0000000d000000080000000400000001000000"
    images = (64, 14, 9, 2), (128, 1792, 16128)
    content = encode_im2col(6, 1 << 20, *images, (-1, -2), (-3, -4), 64, 128, (1,) * 4, 0, 3, 2)
    assert content[8:64].hex() == four_axes + "fffefdfc" + "7f000000"
    shape = (64, 14, 9, 5, 2), (128, 1792, 16128, 80640)
    content = encode_im2col(6, 1 << 20, *shape, (-4, -5, -6), (-7, -8, -9), 64, 64, (1, 2, 3, 4, 1), 0, 3, 2)
    assert content[8:64].hex() == five_axes + "8806003f" + "7c6b195f" + "3f000000"


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_decoding_an_encoded_map_returns_it(rank: int) -> None:
    bound = 1 << corner_bits(rank - 2) - 1
    corners = (-bound, -1, 0)[: rank - 2], (bound - 1, 3, -2)[: rank - 2]
    extents, strides = (64, 40, 30, 20, 10)[:rank], (128, 5120, 153600, 3072000)[: rank - 1]
    steps = (1, 2, 8, 3, 1)[:rank]
    content = encode_im2col(9, 4096, extents, strides, *corners, 16, 1024, steps, 0, 1, 3, 1)
    expected = TensorMap(ELEMENT_TYPES[9], 4096, extents, strides, (16, 1024), steps, 0, 1, 3, True, corners)
    assert TensorMap.decode(content) == expected
    assert expected.counts == (16, 1024)


INVALID: dict[str, dict[str, Any]] = {
    "tensorRank is 2": {"extents": (8, 4), "strides": (32,)},
    r"pixelBoxLowerCorner\[0\] is -129, it must be -128 to 127": {"lower_corner": (-129, 0)},
    r"pixelBoxUpperCorner\[1\] is 128": {"upper_corner": (0, 128)},
    "pixelBoxUpperCorner has 1 values": {"upper_corner": (0,)},
    "the bounding box is empty: along axis 1": {"lower_corner": (2, 0), "upper_corner": (-2, 0)},
    "channelsPerPixel is 257": {"channels_per_pixel": 257},
    "channelsPerPixel is 3 elements, 12 bytes: it must be a multiple of 16": {"channels_per_pixel": 3},
    "channelsPerPixel is 16 elements, 64 bytes: more than the 32": {"channels_per_pixel": 16, "swizzle": 1},
    "pixelsPerColumn is 1025": {"pixels_per_column": 1025},
    r"elementStrides\[1\] is 9": {"steps": (1, 9, 1, 1)},
}


@pytest.mark.parametrize("rule", INVALID)
def test_encoding_invalid_arguments_is_an_error(rule: str) -> None:
    arguments: dict[str, Any] = {
        "data_type": 7,
        "address": 4096,
        "extents": (8, 4, 4, 2),
        "strides": (32, 128, 512),
        "lower_corner": (0, 0),
        "upper_corner": (0, 0),
        "channels_per_pixel": 8,
        "pixels_per_column": 16,
        "steps": (1, 1, 1, 1),
    }
    with pytest.raises(ValueError, match=f"cuTensorMapEncodeIm2col: CUDA_ERROR_INVALID_VALUE: {rule}"):
        encode_im2col(**arguments | INVALID[rule])
