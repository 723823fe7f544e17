"""Test that the machine rejects unknown instructions with their name and source line."""

from __future__ import annotations

import pytest

from warpcheck import simt
from warpcheck.isa import is_known
from warpcheck.ptx import Instruction

# Instructions of later architectures are rejected in ptxas's words; test_isa_availability tests them.
REFUSED = [
    "mad.hi.sat.s32 %r1, %r1, %r1, %r1;",
    "ld.global.b128 %rd1, [%rd1];",
    "atom.global.exch.b128 %rd1, [%rd1], %rd1;",
    "red.global.max.f32 [%rd1], %f1;",
    "discard.global.L2 [%rd1], 128;",
    "multimem.red.relaxed.sys.global.add.f32 [%rd1], %f1;",
]


@pytest.mark.parametrize("statement", REFUSED)
def test_an_unknown_variant_is_named_with_its_line(statement: str) -> None:
    text = f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k() {{
    .reg .pred %p<2>; .reg .b16 %rs<2>; .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .f64 %fd<2>; .reg .b64 %rd<2>;
    .loc 1 17 5
    {statement}
    ret;
}}
.file 1 "mine.cu"
"""
    with pytest.raises(simt.Unsupported) as caught:
        simt.load(text).launch("k", grid=(1,), block=(32,))
    assert caught.value.line == 17
    assert caught.value.instruction.startswith(statement.split()[0].rstrip(";"))


EMITTED = """atom.global.acq_rel.gpu.cas.b32 atom.global.gpu.acq_rel.add.u32 atom.global.gpu.acq_rel.add.noftz.f16
atom.acquire.gpu.global.exch.b32 red.relaxed.gpu.global.add.f32 ld.global.nc.L1::no_allocate.L2::128B.v4.u32
ld.global.L1::evict_last.L2::cache_hint.v2.b32 ld.volatile.shared.u32 ld.acquire.sys.global.b32 st.global.wt.b8
ld.global.gpu.acquire.b32 ld.global.acquire.gpu.b32 st.release.gpu.global.b32 st.global.release.gpu.b32
st.global.gpu.relaxed.v2.b32 cp.async.cg.shared.global.L2::cache_hint.L2::128B
cp.async.ca.shared::cta.global
createpolicy.fractional.L2::evict_first.b64 prefetch.global.L2 prefetch.L1 match.any.sync.b64 set.eq.u32.f16x2
barrier.sync.aligned barrier.cta.red.popc.aligned.u32 cvt.rni.ftz.s32.f32 cvt.sat.f32.f32 cvt.rn.relu.bf16x2.f32"""


@pytest.mark.parametrize("name", EMITTED.split())
def test_variants_that_compilers_emit_are_known(name: str) -> None:
    opcode, *modifiers = name.split(".")
    assert is_known(Instruction(opcode, tuple(modifiers), ()))


def test_unknown_instruction_is_named_with_its_line() -> None:
    text = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k() {
    .reg .b32 %r<4>;
    .loc 1 17 5
    discard.global.L2 [%r1], 128;
    ret;
}
.file 1 "mine.cu"
"""
    with pytest.raises(simt.Unsupported, match=r"line 17: the PTX machine has no discard\.global\.L2") as caught:
        simt.load(text).launch("k", grid=(1,), block=(32,))
    assert caught.value.line == 17
    assert caught.value.file == "mine.cu"
