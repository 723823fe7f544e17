"""Test that an architecture rejects instructions it lacks, with ptxas's messages (12.9 for sm_80)."""

from __future__ import annotations

import re

import pytest

from machine import programs
from warpcheck import simt
from warpcheck.isa_availability import refusal, target_with
from warpcheck.target import SM_80, SM_90A, SM_100A, gpu_architecture, of_gpu

LATER_THAN_SM_80 = {
    "mbarrier.try_wait.shared::cta.b64 %p1, [%r1], %rd1;": "Feature 'mbarrier.try_wait' requires .target sm_90",
    "mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%r1], %r2;": "Feature 'mbarrier.arrive.expect_tx' requires",
    "mbarrier.arrive.release.cluster.shared::cta.b64 %rd1, [%r1];": "Feature '.cluster' requires .target sm_90",
    "elect.sync %r1|%p1, -1;": "Feature 'elect' requires .target sm_90 or higher",
    "fence.proxy.async.shared::cta;": "'.async' requires .target sm_90 or higher",
    "fence.mbarrier_init.release.cluster;": "'.mbarrier_init' requires .target sm_90 or higher",
    "cp.async.bulk.commit_group;": "Feature 'cp.async.bulk' requires .target sm_90 or higher",
    "wgmma.fence.sync.aligned;": "Instruction 'wgmma.fence' not supported on .target 'sm_80'",
    "barrier.cluster.arrive;": "Feature 'barrier.cluster.arrive' requires .target sm_90 or higher",
    "mapa.shared::cluster.u32 %r1, %r2, 0;": "Feature 'mapa' requires .target sm_90 or higher",
    "ld.shared::cluster.f32 %f1, [%r1];": "Feature '::cluster' requires .target sm_90 or higher",
    "fence.acq_rel.cluster;": "Feature '.cluster' requires .target sm_90 or higher",
    "setmaxnreg.dec.sync.aligned.u32 40;": "Instruction 'setmaxnreg.dec' not supported on .target 'sm_80'",
    "griddepcontrol.wait;": "'griddepcontrol' requires .target sm_90 or higher",
    "cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2;": "Feature 'cvt' requires .target sm_89 or higher",
    "atom.global.add.v2.f32 {%f1,%f2}, [%rd1], {%f1,%f2};": "'.v2' requires .target sm_90 or higher",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};": "Feature 'stmatrix' requires .target sm_90 or higher",
    "mov.u32 %r1, %cluster_ctarank;": "Feature '%cluster_ctarank' requires .target sm_90 or higher",
    "min.relu.s32 %r1, %r1, %r2;": "'.relu' requires .target sm_90 or higher",
    "add.bf16 %rs1, %rs1, %rs1;": "Feature 'add.bf16' requires .target sm_90 or higher",
    "setp.lt.bf16 %p1, %rs1, %rs2;": "Feature 'setp.bf16' requires .target sm_90 or higher",
    "atom.global.add.noftz.bf16 %rs1, [%rd1], %rs2;": "requires .target sm_90 or higher",
    "cvt.rn.bf16.f16 %rs1, %rs2;": "requires .target sm_90 or higher",
    "min.xorsign.abs.f32 %f1, %f1, %f1;": "Feature '.abs' requires .target sm_86 or higher",
}


# The messages of ptxas 13 for sm_90a.
BLACKWELL = {
    "tcgen05.wait::ld.sync.aligned;": "Instruction 'tcgen05.wait' not supported on .target 'sm_90a'",
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;": "Instruction 'tcgen05.alloc' not supported",
    "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];": "Feature '.32x32b' not supported on .target 'sm_90a'",
    "add.rn.f32x2 %rd1, %rd1, %rd1;": "Feature 'add.f32x2' requires .target sm_100 or higher",
    "fma.rn.f32.f16 %f1, %rs1, %rs1, %f2;": "Feature 'fma.f32.f16' requires .target sm_100 or higher",
    "min.f32 %f1, %f2, %f1, %f1;": "Feature 'min.f32 with 3 input operands' requires .target sm_100 or higher",
    "ld.global.v4.b64 {%rd1,%rd1,%rd1,%rd1}, [%rd1];": "Feature '256 bit wide load/store' requires .target sm_100",
    "st.global.v8.b32 [%rd1], {%r1,%r1,%r1,%r1,%r1,%r1,%r1,%r1};": "Feature '256 bit wide load/store' requires",
    "redux.sync.min.f32 %f1, %f2, -1;": "Instruction 'redux.f32' not supported on .target 'sm_90a'",
    "cvt.rn.satfinite.e2m3x2.f32 %rs1, %f1, %f2;": "Feature 'cvt.e2m3x2.f32' not supported on .target 'sm_90a'",
    "cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2;": "Feature '.rs' not supported on .target 'sm_90a'",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1,%r2}, [%r2];": "Feature '.m16n16' not supported",
    "st.bulk.weak.shared::cta [%rd1], 64, 0;": "Feature 'st.bulk' requires .target sm_100 or higher",
    "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %rd1;": "Feature '.is_canceled' requires .target",
    "cp.async.bulk.tensor.1d.cta_group::1.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1],"
    " [%rd1, {%r1}], [%r2];": "Feature '.cta_group::1' not supported on .target 'sm_90a'",
}


# The messages of ptxas 13 for sm_75.
AMPERE = {
    "cp.async.ca.shared.global [%r1], [%rd1], 16;": "Feature 'cp.async' requires .target sm_80 or higher",
    "cp.async.commit_group;": "Feature 'cp.async.commit_group' requires .target sm_80 or higher",
    "mbarrier.init.shared::cta.b64 [%r1], 1;": "Feature 'mbarrier.init' requires .target sm_80 or higher",
    "redux.sync.add.u32 %r1, %r2, -1;": "Feature 'redux' requires .target sm_80 or higher",
    "createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3F800000;": "Feature 'createpolicy.fractional' requires",
    "ld.global.L2::cache_hint.u32 %r1, [%rd1], %rd2;": "'.L2::cache_hint' requires .target sm_80 or higher",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6},"
    " {%f1,%f2,%f3,%f4};": "Feature '.m16n8k16' requires .target sm_80 or higher",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1,%fd2}, {%fd3}, {%fd4}, {%fd1,%fd2};": "requires .target",
    "fma.rn.bf16x2 %r1, %r1, %r1, %r1;": "Feature '.bf16x2' requires .target sm_80 or higher",
    "cvt.rn.bf16.f32 %rs1, %f1;": "Feature '.bf16' requires .target sm_80 or higher",
    "cvt.rna.tf32.f32 %r1, %f1;": "Feature '.tf32' requires .target sm_80 or higher",
    "cvt.rn.f16x2.f32 %r1, %f1, %f1;": "Feature 'cvt.f16x2.f32' requires .target sm_80 or higher",
    "fma.rn.relu.f16 %rs1, %rs1, %rs1, %rs1;": "'.relu' requires .target sm_80 or higher",
    "min.NaN.f32 %f1, %f1, %f1;": "'.NaN' requires .target sm_80 or higher",
    "elect.sync %r1|%p1, -1;": "Feature 'elect' requires .target sm_90 or higher",
}

# Instructions that ptxas 13 accepts for sm_75.
TURING = """
    ld.acquire.gpu.global.u32 %r1, [%rd1]; st.shared::cta.u32 [%r2], %r1; fence.acq_rel.gpu; bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2]; match.any.sync.b32 %r1, %r2, -1;
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r5}, {%f1,%f2,%f3,%f4};
    tanh.approx.f16 %rs1, %rs1; fma.rn.f16 %rs1, %rs1, %rs1, %rs1; abs.f16 %rs1, %rs1; min.f32 %f1, %f1, %f2;
    cvt.rn.f16.f32 %rs1, %f1; atom.global.add.noftz.f16 %rs1, [%rd1], %rs2; nanosleep.u32 100;
"""


def wrap(statements: str, target: str = "sm_80") -> str:
    return programs.wrap(statements).replace("sm_90a", target)


SUPPORTED_ON_SM_80 = """
    mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.arrive.release.cta.shared::cta.b64 %rd1, [%r1];
    cp.async.ca.shared.global [%r1], [%rd1], 16; createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3F800000;
    fence.acq_rel.gpu; atom.global.add.f32 %f1, [%rd1], %f2; ld.acquire.gpu.global.u32 %r1, [%rd1]; bar.sync 0;
"""


@pytest.mark.parametrize("statement", LATER_THAN_SM_80)
def test_sm_80_rejects_instructions_of_later_architectures(statement: str) -> None:
    module = simt.load(wrap(statement))
    (instruction,) = module.parsed.functions["k"].body
    with pytest.raises(simt.Rejected, match=r"^line 0: .*" + LATER_THAN_SM_80[statement]):
        module.compile("k")
    assert refusal(instruction, "sm_90a", 80) == ""


@pytest.mark.parametrize("statement", BLACKWELL)
def test_sm_90a_rejects_instructions_of_blackwell(statement: str) -> None:
    with pytest.raises(simt.Rejected, match="^line 0: " + re.escape(BLACKWELL[statement])):
        simt.load(wrap(statement, "sm_90a")).compile("k")


def test_sm_100a_rejects_tcgen05_ld_red() -> None:
    statement = "tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%r1, %r2}, %r3, [%r4];"
    (instruction,) = simt.load(wrap(statement)).parsed.functions["k"].body
    message = "Instruction 'tcgen05.ld.red' not supported on .target 'sm_100a'"
    assert refusal(instruction, "sm_100a", 100) == message
    assert not target_with(message)


@pytest.mark.parametrize("statement", AMPERE)
def test_ptx_for_sm_75_cannot_use_instructions_of_ampere(statement: str) -> None:
    with pytest.raises(simt.Rejected, match="^line 0: .*" + re.escape(AMPERE[statement])):
        simt.load(wrap(statement, "sm_75"), target=SM_80).compile("k")
    if statement not in LATER_THAN_SM_80:
        simt.load(wrap(statement)).compile("k")


def test_a_later_device_runs_ptx_for_sm_75() -> None:
    """The driver compiles PTX for later devices."""
    simt.load(wrap(TURING, "sm_75"), target=SM_80).compile("k")


def test_sm_80_accepts_its_own_instructions() -> None:
    body = simt.load(wrap(SUPPORTED_ON_SM_80)).parsed.functions["k"].body
    assert [refusal(instruction, "sm_80", 80) for instruction in body] == [""] * 8


def test_an_undefined_function_is_unresolved() -> None:
    text = wrap("call.uni missing, ();").replace(".visible .entry", ".extern .func missing();\n.visible .entry")
    with pytest.raises(simt.Rejected, match="Unresolved extern function 'missing'"):
        simt.load(text).compile("k")


def test_wgmma_needs_the_architecture_specific_target() -> None:
    (instruction,) = simt.load(wrap("wgmma.fence.sync.aligned;")).parsed.functions["k"].body
    assert refusal(instruction, "sm_90", 80) == "Instruction 'wgmma.fence' not supported on .target 'sm_90'"


def test_tcgen05_needs_an_architecture_or_family_specific_target() -> None:
    (instruction,) = simt.load(wrap("tcgen05.wait::ld.sync.aligned;")).parsed.functions["k"].body
    assert refusal(instruction, "sm_100", 80) == "Instruction 'tcgen05.wait' not supported on .target 'sm_100'"
    assert refusal(instruction, "sm_100a", 80) == refusal(instruction, "sm_100f", 80) == ""
    (wgmma,) = simt.load(wrap("wgmma.fence.sync.aligned;")).parsed.functions["k"].body
    assert refusal(wgmma, "sm_100a", 80) == "Instruction 'wgmma.fence' not supported on .target 'sm_100a'"
    (setmaxnreg,) = simt.load(wrap("setmaxnreg.dec.sync.aligned.u32 40;")).parsed.functions["k"].body
    assert refusal(setmaxnreg, "sm_100a", 80) == ""


def test_a_blackwell_device_loads_its_family_and_older_ptx() -> None:
    for loadable in ("sm_80", "sm_90", "sm_100", "sm_100f", "sm_100a"):
        assert simt.load(wrap("ret;", loadable), target=SM_100A).target is SM_100A
    for other_target in ("sm_90a", "sm_103a", "sm_120f"):
        with pytest.raises(ValueError, match=f"the PTX is for {other_target}, the device is sm_100a"):
            simt.load(wrap("ret;", other_target), target=SM_100A)


def test_a_device_rejects_ptx_for_later_ones() -> None:
    hopper_ptx = wrap("ret;", "sm_90a")
    with pytest.raises(ValueError, match=r"no kernel image is available .* for sm_90a, the device is sm_80"):
        simt.load(hopper_ptx, target=SM_80)
    assert simt.load(hopper_ptx).target is SM_90A
    assert simt.load(wrap("ret;"), target=SM_90A).target is SM_90A  # the driver compiles older PTX
    for later_target in ("sm_100", "sm_100a", "sm_120f"):
        with pytest.raises(ValueError, match=f"the PTX is for {later_target}, the device is sm_90a"):
            simt.load(wrap("ret;", later_target), target=SM_90A)
    assert simt.load(wrap("ret;", "compute_90"), target=SM_90A).target is SM_90A
    for name in ("sm_90b", "hopper"):
        with pytest.raises(ValueError, match=f"Unsupported .target '{name}'"):
            simt.load(wrap("ret;", name), target=SM_90A)


def test_a_gpu_is_modeled_by_the_latest_target_up_to_its_capability() -> None:
    assert [of_gpu(*capability) for capability in ((7, 5), (8, 0), (8, 9))] == [SM_80] * 3
    assert of_gpu(9, 0) is SM_90A
    assert [of_gpu(*capability) for capability in ((10, 0), (10, 3), (12, 0))] == [SM_100A] * 3


def test_shared_memory_and_clusters_follow_the_target() -> None:
    single = (1, 1, 1)
    assert SM_90A.refusal(single, single, 0, 227 * 1024) == ""
    assert "232449 bytes of shared memory exceed the 232448" in SM_90A.refusal(single, single, 0, 227 * 1024 + 1)
    assert SM_90A.refusal((32, 1, 1), single, 0, 0, (16, 1, 1)) == ""
    assert "32 blocks, more than the 16 that sm_90a" in SM_90A.refusal((32, 1, 1), single, 0, 0, (32, 1, 1))
    assert "a grid of 6 along x is not a multiple of the cluster's 4" in SM_90A.refusal(
        (6, 1, 1), single, 0, 0, (4, 1, 1)
    )
    assert "sm_80 has no clusters" in SM_80.refusal((4, 1, 1), single, 0, 0, (2, 1, 1))


def test_a_kernel_knows_its_required_cluster_and_maximum_threads() -> None:
    text = wrap("ret;").replace(
        "entry k()", "entry k()\n.maxntid 64, 2\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n"
    )
    module = simt.load(text)
    assert module.kernels["k"].cluster == (2, 1, 1)
    assert module.parsed.functions["k"].directives.maxntid == 128


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("Feature 'elect' requires .target sm_90 or higher", "sm_90a"),
        ("Feature 'cvt' requires .target sm_89 or higher", "sm_90a"),
        ("Feature 'redux' requires .target sm_80 or higher", "sm_80"),
        ("Feature 'st.bulk' requires .target sm_100 or higher", "sm_100a"),
        ("Instruction 'wgmma.fence' not supported on .target 'sm_80'", "sm_90a"),
        ("Instruction 'tcgen05.wait' not supported on .target 'sm_80'", "sm_100a"),
        ("Unresolved extern function 'missing'", ""),
    ],
)
def test_a_message_names_the_target_that_has_the_feature(message: str, name: str) -> None:
    assert target_with(message) == name


def test_a_gpu_compiles_for_its_architecture_specific_target() -> None:
    # Compiled for sm_90, CUTLASS's kernels for Hopper are empty and would write nothing.
    assert [gpu_architecture(8, 9), gpu_architecture(9, 0), gpu_architecture(10, 0)] == ["sm_89", "sm_90a", "sm_100a"]
