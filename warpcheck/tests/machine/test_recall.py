"""Test that kernels share compiled code, and that sharing doesn't change a kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from warpcheck import codec, compiler, ptx
from warpcheck.errors import Unsupported
from warpcheck.isa import OPS
from warpcheck.lower.compiled_shapes import emit_uncached
from warpcheck.lower.kernel_lowering import KernelLowering
from warpcheck.lowered_kernel import CompiledShape, Lowered
from warpcheck.target import TARGETS


class Memory:
    """A cache of compiled shapes by name, which stores them encoded, as the cache on disk does."""

    def __init__(self) -> None:
        self.encoded: dict[str, bytes] = {}

    def __call__(self, name: str, emit: Callable[[], CompiledShape]) -> CompiledShape:
        if name not in self.encoded:
            self.encoded[name] = codec.encode_shape(emit())
        shape = codec.decode_shape(self.encoded[name], compiler.CONSTANTS)
        assert shape is not None
        return shape


def lower(text: str, recall: Callable[[str, Callable[[], CompiledShape]], CompiledShape] = emit_uncached) -> Lowered:
    module = ptx.parse(text)
    return KernelLowering(module, module.functions["k"], OPS, TARGETS["sm_90a"], recall).lower()


def kernel(body: str, parameters: str = ".param .u64 p", before: str = "") -> str:
    """Return a kernel with uninitialized registers of each kind: %r0 and so on."""
    return f"""
        .version 8.0
        .target sm_90a
        .address_size 64
        {before}
        .visible .entry k({parameters})
        {{
            .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %l<8>; .reg .f32 %f<8>; .reg .pred %p<4>;
            {body}
            ret;
        }}"""


ADD = "add.s32 %r0, %r1, %r2;"
TAKE = "ld.param.u64 %l0, [p];"
TILE = "mov.u32 %r0, tile;"
GLOBAL = "mov.u64 %l0, table;"
LOAD = "ld.global.u32 %r0, [%l0];"

PAIRS = {
    "kinds of registers": (kernel("cvt.u64.u32 %l0, %r0;"), kernel("cvt.u64.u32 %l0, %l1;")),
    "modifiers": (kernel(ADD), kernel("add.sat.s32 %r0, %r1, %r2;")),
    "registers named twice": (kernel(ADD), kernel("add.s32 %r0, %r1, %r1;")),
    "guard": (kernel(ADD), kernel("@%p0 " + ADD)),
    "negated guard": (kernel("@%p0 " + ADD), kernel("@!%p0 " + ADD)),
    "constants": (kernel("prmt.b32 %r0, %r1, %r2, 0x3210;"), kernel("prmt.b32 %r0, %r1, %r2, 0x7531;")),
    "place of a parameter": (kernel(TAKE), kernel(TAKE, ".param .u64 o, .param .u64 p")),
    "place in shared memory": (
        kernel(TILE, before=".shared .align 4 .b8 tile[8];"),
        kernel(TILE, before=".shared .align 4 .b8 other[8]; .shared .align 4 .b8 tile[8];"),
    ),
    "space of a variable": (
        kernel("mov.u64 %l0, tile;", before=".shared .align 4 .b8 tile[8];"),
        kernel("mov.u64 %l0, tile;", before=".global .align 4 .b8 tile[8];"),
    ),
    "place among the variables": (
        kernel(GLOBAL, before=".global .b32 table; .global .b32 other;"),
        kernel("mov.u64 %l1, other; " + GLOBAL, before=".global .b32 table; .global .b32 other;"),
    ),
    "place of a function": (
        kernel("mov.u64 %l0, f;", before=".func f() { ret; }"),
        kernel("mov.u64 %l0, f;", before=".func g() { ret; } .func f() { ret; }"),
    ),
    "clusters": (
        kernel("st.shared.u32 [%r0], %r1;"),
        kernel("st.shared.u32 [%r0], %r1; mov.u32 %r3, %cluster_ctarank;"),
    ),
    "lanes that use what is loaded": (
        kernel(LOAD + "st.global.u32 [%l1], %r0;"),
        kernel(LOAD + "selp.u32 %r1, %r0, 0, %p0; st.global.u32 [%l1], %r1;"),
    ),
    "a half that is swapped": (kernel(LOAD), kernel(LOAD + "atom.global.cas.b32 %r1, [%l0], %r2, %r3;")),
    "polling": (
        kernel("ld.volatile.global.u32 %r0, [%l0]; setp.ne.u32 %p0, %r0, 0;"),
        kernel(
            "ld.param.u64 %l0, [p]; again: ld.volatile.global.u32 %r0, [%l0]; setp.ne.u32 %p0, %r0, 0; @%p0 bra again;"
        ),
    ),
}


@pytest.mark.parametrize(("first", "second"), PAIRS.values(), ids=PAIRS.keys())
def test_lowering_another_kernel_first_changes_nothing(first: str, second: str) -> None:
    expected = lower(first), lower(second)
    assert expected[0].functions.keys() != expected[1].functions.keys(), (
        "the two kernels share all code, so this pair tests nothing"
    )
    memory = Memory()
    assert (lower(first, memory), lower(second, memory)) == expected
    memory = Memory()
    assert (lower(second, memory), lower(first, memory)) == expected[::-1]


def test_the_carry_flag_is_not_shared_between_kernels() -> None:
    memory = Memory()
    addc = "addc.u32 %r0, %r1, %r2;"
    lower(kernel("add.cc.u32 %r0, %r1, %r2; " + addc), memory)
    with pytest.raises(Unsupported, match=r"without \.cc before it"):
        lower(kernel(addc), memory)


def test_a_shape_is_emitted_only_once() -> None:
    memory = Memory()
    before = lower(kernel(f"{TAKE} {ADD} {LOAD}"), memory)
    first_shapes = dict(memory.encoded)
    after = lower(kernel(f"{TAKE} add.s32 %r4, %r6, %r7; {LOAD} add.s32 %r1, %r1, %r3;"), memory)
    assert first_shapes.keys() < memory.encoded.keys()
    (new_shape,) = (name for name in memory.encoded if name not in first_shapes)
    assert "add" in new_shape, "only the second add names %r1 twice"
    assert before.functions.items() < after.functions.items()
