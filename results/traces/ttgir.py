"""Kernels whose TTGIR has conversions between layouts, and some whose TTGIR has none.

`python results/traces/ttgir.py` writes results/traces/ttgir/NAME.ttgir.gz. Triton compiles for a GPU that need not be
there. Each kernel has two sets of sizes and warps.
"""

import gzip
import re
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

FOLDER = Path(__file__).with_suffix("")


@triton.jit
def transpose(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    j = tl.program_id(1) * C + tl.arange(0, C)
    tile = tl.load(x + i[:, None] * columns + j[None, :])
    tl.store(out + j[:, None] * rows + i[None, :], tl.trans(tile))


@triton.jit
def row_sum(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    j = tl.arange(0, C)
    tl.store(out + i, tl.sum(tl.load(x + i[:, None] * columns + j[None, :]), 1))


@triton.jit
def column_sum(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, R)
    j = tl.program_id(0) * C + tl.arange(0, C)
    tl.store(out + j, tl.sum(tl.load(x + i[:, None] * columns + j[None, :]), 0))


@triton.jit
def outer(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    j = tl.program_id(1) * C + tl.arange(0, C)
    tl.store(out + i[:, None] * columns + j[None, :], tl.load(x + i)[:, None] * tl.load(x + rows + j)[None, :])


@triton.jit
def scale_rows(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    j = tl.program_id(1) * C + tl.arange(0, C)
    tile = tl.load(x + i[:, None] * columns + j[None, :])
    tl.store(out + i[:, None] * columns + j[None, :], tile * tl.load(x + rows * columns + i)[:, None])


@triton.jit
def symmetric(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, R)
    j = tl.arange(0, C)
    at = i[:, None] * columns + j[None, :]
    tile = tl.load(x + at)
    mirrored = tl.load(x + i[:, None] + j[None, :] * columns)
    tl.store(out + at, tile + mirrored)


@triton.jit
def softmax(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    at = i[:, None] * columns + tl.arange(0, C)[None, :]
    tile = tl.load(x + at).to(tl.float32)
    numerator = tl.exp(tile - tl.max(tile, 1)[:, None])
    tl.store(out + at, numerator / tl.sum(numerator, 1)[:, None])


@triton.jit
def widen(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * R * C + tl.arange(0, R * C)
    tl.store(out + i, tl.load(x + i).to(tl.float32))


VARIANTS = {
    transpose: (("fp32", "fp32", 64, 32, 4), ("fp16", "fp16", 32, 32, 1)),
    row_sum: (("fp32", "fp32", 32, 64, 4), ("fp16", "fp32", 16, 128, 2)),
    column_sum: (("fp32", "fp32", 32, 64, 4), ("fp16", "fp32", 8, 128, 8)),
    outer: (("fp32", "fp32", 32, 64, 4), ("fp16", "fp16", 64, 64, 2)),
    scale_rows: (("fp32", "fp32", 16, 128, 4), ("fp16", "fp16", 128, 32, 8)),
    symmetric: (("fp32", "fp32", 32, 32, 4), ("fp16", "fp16", 16, 64, 1)),
    softmax: (("fp32", "fp32", 4, 256, 4), ("fp16", "fp16", 1, 512, 1)),
    widen: (("fp16", "fp32", 32, 32, 4), ("i8", "fp32", 4, 128, 1)),
}
"""The types of x and out, rows and columns of a tile, and the number of warps."""


def ttgir(kernel, x: str, out: str, rows: int, columns: int, warps: int, architecture: int = 80):  # type: ignore[no-untyped-def]
    """Return the compiled kernel for tensors and sizes that are multiples of 16."""
    types = {"x": f"*{x}", "out": f"*{out}", "rows": "i32", "columns": "i32", "R": "constexpr", "C": "constexpr"}
    divisible = {(number,): [["tt.divisibility", 16]] for number in range(4)}
    source = ASTSource(kernel, types, {"R": rows, "C": columns}, attrs=divisible)
    return triton.compile(
        source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": warps, "enable_fp_fusion": True}
    )


def without_locations(text: str) -> str:
    """Return a dump without the places in the source, which name folders of the machine that wrote it."""
    text = re.sub(r"^#loc\d* = loc\(.*\)\n", "", text, flags=re.M)
    return re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", text)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for kernel, variants in VARIANTS.items():
        for number, variant in enumerate(variants):
            text = without_locations(ttgir(kernel, *variant).asm["ttgir"])
            packed = gzip.compress(text.encode(), mtime=0)
            (FOLDER / f"{kernel.fn.__name__}{number}.ttgir.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
