"""Kernels that Triton compiles for an AMD Instinct MI300X (gfx942), whose assembly an exercise reads.

`python results/traces/amdgcn.py` writes results/traces/amdgcn/NAME.s.gz. No such GPU is needed. Each kernel has two
sets of types, sizes, and warps.
"""

import gzip
import re
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

FOLDER = Path(__file__).with_suffix("")


@triton.jit
def copy(x, y, out, K, R: tl.constexpr, C: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def add(x, y, out, K, R: tl.constexpr, C: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    tl.store(out + i, tl.load(x + i, i < K) + tl.load(y + i, i < K), i < K)


@triton.jit
def transpose(x, y, out, K, R: tl.constexpr, C: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    j = tl.program_id(1) * C + tl.arange(0, C)
    tl.store(out + j[:, None] * K + i[None, :], tl.trans(tl.load(x + i[:, None] * K + j[None, :])))


@triton.jit
def softmax(x, y, out, K, R: tl.constexpr, C: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    at = i[:, None] * K + tl.arange(0, C)[None, :]
    tile = tl.load(x + at).to(tl.float32)
    numerator = tl.exp(tile - tl.max(tile, 1)[:, None])
    tl.store(out + at, numerator / tl.sum(numerator, 1)[:, None])


@triton.jit
def matmul(x, y, out, K, R: tl.constexpr, C: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    j = tl.program_id(1) * C + tl.arange(0, C)
    k = tl.arange(0, B)
    acc = tl.zeros((R, C), tl.int32 if x.dtype.element_ty == tl.int8 else tl.float32)
    for begin in range(0, K, B):
        a = tl.load(x + i[:, None] * K + begin + k[None, :])
        b = tl.load(y + j[None, :] * K + begin + k[:, None])
        acc = tl.dot(a, b, acc, out_dtype=acc.dtype)
    tl.store(out + i[:, None] * 4096 + j[None, :], acc)


@triton.jit
def chained(x, y, out, K, R: tl.constexpr, C: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, R)
    k = tl.arange(0, B)
    a = tl.load(x + i[:, None] * B + k[None, :])
    b = tl.load(y + k[:, None] * B + k[None, :])
    scores = tl.dot(a, b)
    tl.store(out + i[:, None] * B + k[None, :], tl.dot(scores.to(a.dtype), b))


VARIANTS = {
    copy: (("fp32", "fp32", 1024, 1, 1, 4), ("i8", "i8", 2048, 1, 1, 2)),
    add: (("fp16", "fp16", 2048, 1, 1, 4), ("fp32", "fp32", 512, 1, 1, 8)),
    transpose: (("fp32", "fp32", 64, 32, 1, 4), ("fp16", "fp16", 64, 64, 1, 8)),
    softmax: (("fp32", "fp32", 4, 512, 1, 4), ("fp16", "fp16", 1, 2048, 1, 8)),
    matmul: (("fp16", "fp32", 128, 128, 32, 4), ("i8", "i32", 128, 64, 64, 8)),
    chained: (("bf16", "fp32", 64, 64, 64, 4), ("fp32", "fp32", 32, 32, 32, 2)),
}
"""The types of the inputs and of out, R, C, B, and the number of warps."""


def amdgcn(kernel: Any, x: str, out: str, r: int, c: int, b: int, warps: int) -> str:
    """Return the assembly, with what a launch passes besides in a first comment, and without places in the source."""
    types = dict.fromkeys(("x", "y"), f"*{x}") | {"out": f"*{out}", "K": "i32"}
    types |= dict.fromkeys(("R", "C", "B"), "constexpr")
    divisible = {(number,): [["tt.divisibility", 16]] for number in range(4)}
    source = ASTSource(kernel, types, {"R": r, "C": c, "B": b}, attrs=divisible)
    options = {"num_warps": warps, "enable_fp_fusion": True}
    compiled = triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options=options)
    code, _, rest = compiled.asm["amdgcn"].partition("\t.section\t.debug")
    metadata = rest[rest.index("\t.amdgpu_metadata") :].partition("\t.section\t.debug")[0]
    text = re.sub(r"^\s*\.(file|loc|cfi_\w+)\b.*\n", "", code + metadata, flags=re.M)
    text = re.sub(r"[ \t]*;.*", "", text)
    text = re.sub(r"\n\s*\n+", "\n", text)
    return f"; shared = {compiled.metadata.shared}\n{text.lstrip()}"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for kernel, variants in VARIANTS.items():
        for number, variant in enumerate(variants):
            packed = gzip.compress(amdgcn(kernel, *variant).encode(), mtime=0)
            (FOLDER / f"{kernel.fn.__name__}{number}.s.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
