"""Test wmma: values, and memory accesses as the hardware makes them.

The layout of fragments in registers is unspecified in PTX, so the machine has its own.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from machine.launching import Run, aligned, buffer
from warpcheck import simt
from warpcheck.layout import Access

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "s8": torch.int8}


def wmma_source(kind: str, out: str, b_layout: str, sizes: tuple[int, int, int]) -> str:
    """Return PTX in which one warp multiplies one tile.

    a, c, and d are row-major. ``b_layout`` is the layout of b, "row" or "col".
    """
    # The registers per lane of A and B, which are 4 for all other types and shapes.
    words = {("f16", (16, 16, 16)): 8, ("f16", (32, 8, 16)): 8, ("bf16", (16, 16, 16)): 4, ("s8", (16, 16, 16)): 2}
    m, n, k = sizes
    shape = f"m{m}n{n}k{k}"
    count = words.get((kind, sizes), 4)
    a, b, c = (", ".join(f"%{x}{j}" for j in range(number)) for x, number in (("a", count), ("b", count), ("c", 8)))
    types = f"{out}.{out}" if kind == "f16" else f"{out}.{kind}.{kind}.{out}"
    stride = n if b_layout == "row" else k
    return f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc) {{
    .reg .b32 %a<8>; .reg .b32 %b<8>; .reg .b32 %c<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [pa]; ld.param.u64 %rd2, [pb]; ld.param.u64 %rd3, [pc];
    wmma.load.a.sync.aligned.row.{shape}.global.{kind} {{{a}}}, [%rd1], {k};
    wmma.load.b.sync.aligned.{b_layout}.{shape}.global.{kind} {{{b}}}, [%rd2], {stride};
    wmma.load.c.sync.aligned.row.{shape}.global.{out} {{{c}}}, [%rd3], {n};
    wmma.mma.sync.aligned.row.{b_layout}.{shape}.{types} {{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};
    wmma.store.d.sync.aligned.row.{shape}.global.{out} [%rd3], {{{c}}}, {n};
    ret;
}}"""


@pytest.mark.parametrize("b_layout", ["row", "col"])
@pytest.mark.parametrize(
    ("kind", "sizes"), [("f16", (16, 16, 16)), ("f16", (32, 8, 16)), ("bf16", (16, 16, 16)), ("s8", (16, 16, 16))]
)
def test_wmma_multiplies_a_tile(kind: str, sizes: tuple[int, int, int], b_layout: str) -> None:
    m, n, k = sizes
    out = "s32" if kind == "s8" else "f32"
    generate = torch.randn if kind != "s8" else lambda *size: torch.randint(-128, 128, size)
    a, b = (generate(*size).to(DTYPES[kind]) for size in ((m, k), (k, n)))
    c = generate(m, n).to(torch.int32 if kind == "s8" else torch.float32)
    expected = a.double() @ b.double() + c
    stored_b = b if b_layout == "row" else b.T.contiguous()
    buffers = [
        simt.Buffer(name, tensor.data_ptr(), tensor.nbytes, tensor.element_size())
        for name, tensor in zip("abc", (a, stored_b, c), strict=True)
    ]
    module = simt.load(wmma_source(kind, out, b_layout, sizes))
    module.launch("k", grid=(1,), block=(32,), args=[buffer.address for buffer in buffers], buffers=buffers)
    torch.testing.assert_close(c.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("b_layout", "c_layout", "accesses_of_c"), [("row", "row", (4, 32)), ("col", "col", (8, 32))])
def test_wmma_is_counted_as_hardware_accesses_memory(
    b_layout: str, c_layout: str, accesses_of_c: tuple[int, int]
) -> None:
    """Compare requests and sectors with those of the instructions that ptxas generates.

    ptxas turns a load into four loads of a word per lane, in 8 rows, and a store into four stores of two floats per
    lane. A column-major accumulator is stored one float at a time, 8 neighbors in each of 4 columns.
    """
    a, b = (torch.randn(16, 16).to(torch.bfloat16) for _ in range(2))
    c = torch.zeros(16, 16)
    buffers = [
        simt.Buffer(name, tensor.data_ptr(), tensor.nbytes, tensor.element_size())
        for name, tensor in zip("abc", (a, b, c), strict=True)
    ]
    text = wmma_source("bf16", "f32", b_layout, (16, 16, 16)).replace(
        "c.sync.aligned.row", f"c.sync.aligned.{c_layout}"
    )
    text = text.replace("d.sync.aligned.row", f"d.sync.aligned.{c_layout}")
    launch = simt.load(text).launch("k", grid=(1,), block=(32,), args=[x.address for x in buffers], buffers=buffers)
    logical_b = b if b_layout == "row" else b.T
    expected = a.float() @ logical_b.float()
    torch.testing.assert_close(c if c_layout == "row" else c.T, expected, rtol=1e-5, atol=1e-4)
    totals: dict[tuple[str, Access], tuple[int, int]] = {}
    for access in launch.accesses:
        requests, sectors = totals.get((access.buffer, access.access), (0, 0))
        totals[access.buffer, access.access] = requests + access.requests, sectors + access.sectors
    operands = {("a", Access.LOAD): (4, 32), ("b", Access.LOAD): (4, 32)}
    assert totals == {**operands, ("c", Access.LOAD): accesses_of_c, ("c", Access.STORE): accesses_of_c}


def test_a_long_loop_of_wmma_does_not_overflow_the_stack(run: Run) -> None:
    text = wmma_source("f16", "f32", "col", (16, 16, 16))
    start = text.index("    wmma.mma")
    end = text.index("\n", start)
    loop = "mov.u32 %n, 0;\nloop:\n" + text[start:end] + "\nadd.s32 %n, %n, 1; setp.lt.s32 %p, %n, 9000; @%p bra loop;"
    text = text[:start] + ".reg .b32 %n; .reg .pred %p; " + loop + text[end:]
    a, b, c = (aligned(256, dtype) for dtype in (np.float16, np.float16, np.float32))
    a[...], b[...] = 1, 1
    buffers = [buffer(name, array) for name, array in zip("abc", (a, b, c), strict=True)]
    module = simt.load(text)
    args = [x.address for x in buffers]
    module.launch("k", grid=(1,), block=(32,), args=args, buffers=buffers)
    assert (c == 16 * 9000).all()
    module.negated().launch("k", grid=(1,), block=(32,), args=args, buffers=buffers)  # which has more instructions
    assert (c == 0).all()
