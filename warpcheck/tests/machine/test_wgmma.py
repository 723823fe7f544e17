"""Test wgmma with every type, both majors, and every swizzle (PTX ISA manual, 9.7.15)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from machine.launching import aligned
from machine.warpgroups import (
    B_OFFSET,
    DTYPES,
    SHARED,
    Array,
    Case,
    accumulator_registers,
    fragments,
    generate_operands,
    launch,
    place_bits,
    prepare,
    source,
)
from warpcheck import simt

CASES = [
    Case(8, "f16", a_mode=0, b_mode=0),
    Case(256, "f16"),
    Case(24, "f16", "f16", a_mode=2, b_mode=3, a_major=1, b_major=0),
    Case(64, "bf16", a_mode=3, b_mode=1, a_major=1, b_major=1, signs=(-1, 1)),
    Case(16, "f16", a_mode=0, b_mode=0, a_major=1, b_major=1, keep=False),
    Case(64, "bf16", a_mode=None, b_mode=2, b_major=1, signs=(-1, -1)),
    Case(40, "f16", "f16", a_mode=None, b_mode=3, signs=(1, -1)),
    Case(32, "tf32", a_mode=2, b_mode=0),
    Case(32, "tf32", a_mode=None, b_mode=1, base=3),
    Case(48, "e4m3", a_mode=1, b_mode=3, b_kind="e5m2"),
    Case(48, "e5m2", "f16", a_mode=None, b_mode=2, b_kind="e4m3", signs=(-1, 1)),
    Case(96, "s8", "s32", a_mode=3, b_mode=1, b_kind="u8"),
    Case(24, "u8", "s32", a_mode=None, b_mode=0, b_kind="s8", keep=False),
]


NEGATED = [CASES[3], CASES[7], CASES[10], CASES[11], CASES[12]]


@pytest.mark.parametrize(
    ("case", "negated"),
    [*((case, False) for case in CASES), *((case, True) for case in NEGATED)],
    ids=lambda value: (
        f"{value.kind}-{value.to}-n{value.n}-{value.a_mode}-{value.b_mode}"
        if isinstance(value, Case)
        else value * "opposite"
    ),
)
def test_wgmma_equals_matmul(case: Case, negated: bool) -> None:
    a, b, old = generate_operands(case)
    image, descriptors, registers = prepare(case, a, b)
    d = aligned((128, 64 * case.n // 128), DTYPES[case.to])
    d[:] = accumulator_registers(case, old)
    launch(case, source(case), descriptors, image, registers, d, negated=negated)
    sign = case.signs[0] * case.signs[1] * (-1 if negated else 1)
    expected = sign * (a @ b.T) + case.keep * old
    assert np.array_equal(d, accumulator_registers(case, expected).astype(d.dtype))


def test_operands_from_cp_async_need_no_proxy_fence() -> None:
    case = CASES[1]
    a, b, old = generate_operands(case)
    image, descriptors, registers = prepare(case, a, b)
    d = aligned((128, 64 * case.n // 128), DTYPES[case.to])
    d[:] = accumulator_registers(case, old)
    text = source(case).replace("ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd1];\n", "")
    text = text.replace("st.shared.v4.b32 [%r3], {%r5, %r6, %r7, %r8};", "cp.async.cg.shared.global [%r3], [%rd1], 16;")
    launch(case, text.replace("fence.proxy.async;", "cp.async.wait_all;"), descriptors, image, registers, d)
    assert np.array_equal(d, accumulator_registers(case, a @ b.T + old).astype(d.dtype))


RECORDED = json.loads((Path(__file__).parent / "recorded_wgmma.json").read_text())["sums"]
DTYPE = {"f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32, "e4m3": np.uint8, "e5m2": np.uint8}


@pytest.mark.parametrize("kinds", RECORDED)
def test_accumulators_equal_those_of_an_h200(kinds: str) -> None:
    """The results are equal bit for bit, for 16 rows and 8 columns of numbers that differ by many powers of two."""
    a_kind, b_kind, to = kinds.split()
    case = Case(8, a_kind, to, a_mode=None, b_mode=0, b_kind=b_kind)

    def read_recorded(name: str, dtype: Any, rows: int) -> Array:
        return np.frombuffer(bytes.fromhex(RECORDED[kinds][name]), dtype).reshape(rows, -1)

    a, old, expected = np.zeros((64, case.depth), DTYPE[a_kind]), *(np.zeros((64, 8), DTYPES[to]) for _ in range(2))
    a[:16], old[:16], expected[:16] = (
        read_recorded(name, dtype, 16) for name, dtype in (("a", DTYPE[a_kind]), ("d", DTYPES[to]), ("gpu", DTYPES[to]))
    )
    image = aligned(SHARED, np.uint8)
    registers = aligned((128, 4), np.uint32)
    d = aligned((128, 4), DTYPES[to])
    descriptor = place_bits(read_recorded("b", DTYPE[b_kind], 8), 0, 0, B_OFFSET, image)
    registers[:] = fragments(a)
    d[:] = accumulator_registers(case, old)
    launch(case, source(case), (0, descriptor), image, registers, d)
    assert np.array_equal(d, accumulator_registers(case, expected))


SMALL = Case(8, "f16", a_mode=0, b_mode=0)
IN_REGISTERS = Case(8, "f16", a_mode=None, b_mode=0)


def run(text: str, case: Case = SMALL, change: tuple[int, int] = (0, 0)) -> simt.Launch:
    """Launch a case, with some bits of its descriptors flipped."""
    a, b, old = generate_operands(case)
    image, descriptors, registers = prepare(case, a, b)
    d = aligned((128, 64 * case.n // 128), DTYPES[case.to])
    d[:] = accumulator_registers(case, old)
    changed = descriptors[0] ^ change[0], descriptors[1] ^ change[1]
    return launch(case, text, changed, image, registers, d)


def test_operands_are_counted_once_per_warpgroup() -> None:
    """On an H200, ncu counts each warp's rows of A, and B for one of the warps."""
    line = run(source(SMALL)).lines[4]
    assert (line.wgmma_wavefronts, line.wgmma_bytes) == (4 * 4 + 2, 64 * 32 + 8 * 32)
    assert (line.shared_load_requests, line.shared_load_wavefronts) == (0, 0)


def test_most_tensor_operations_assumes_the_largest_product() -> None:
    """The bound takes each wgmma as m64n256k32. The fence, the commit, and the wait count as well."""
    assert run(source(SMALL)).totals.most_tensor_operations == 4 * 2 * 64 * 256 * 32


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ((0, 0x3000), "OUT_OF_BOUNDS", "past the end of shared memory"),
        ((0x3000 << 32, 0), "OUT_OF_BOUNDS", "past the end of shared memory"),
        ((0, 1 << 60), "DESCRIPTOR", "bits are set that mean nothing"),
    ],
)
def test_an_invalid_descriptor_is_a_fault(change: tuple[int, int], kind: str, message: str) -> None:
    with pytest.raises(simt.Fault, match=message) as caught:
        run(source(SMALL), change=change)
    assert (caught.value.kind.name, caught.value.line) == (kind, 4)


MOVE = "mov.b32 %r1, %d1;\nmov.b64 %rd1, {%d0, %d1};\nmov.b64 {%r2, %r3}, %rd1;"
WAIT = "wgmma.wait_group.sync.aligned 0;"
STORE = "st.shared.b32 [%r3], %r1;"
TO_A, TO_B = (f"mov.u32 %r3, memory;\nmov.u32 %r1, 0;\nadd.u32 %r3, %r3, {at};\n{STORE}" for at in (0, B_OFFSET))


@pytest.mark.parametrize(
    ("case", "parts", "line", "message"),
    [
        (SMALL, {"after": "add.u32 %r1, %d1, 1;"}, 5, "uses a result of wgmma.mma_async in line 4 while that is in"),
        (SMALL, {"wait": " "}, 7, "uses a result of wgmma.mma_async in line 4"),
        (SMALL, {"wait": "wgmma.wait_group.sync.aligned 1;"}, 7, "uses a result of wgmma.mma_async in line 4"),
        (SMALL, {"after": f"{MOVE}\nadd.u32 %r1, %r3, 1;"}, 5, "uses a result of wgmma.mma_async in line 4"),
        (SMALL, {"after": "add.u32 %d1, %r1, 1;"}, 5, "writes to a register of wgmma.mma_async in line 4"),
        (SMALL, {"before": "// none"}, 4, "gives wgmma a register that ld.global.b32 in line 2 writes"),
        (IN_REGISTERS, {"after": "add.u32 %a1, %r1, 1;"}, 5, "writes to a register of wgmma.mma_async in line 4"),
        (
            IN_REGISTERS,
            {"before": "wgmma.fence.sync.aligned;\nadd.u32 %a1, %r1, 1;"},
            4,
            "that add.u32 in line 3 writes",
        ),
        (SMALL, {"after": TO_A}, 5, "which the wgmma in line 4 may still read"),
        (SMALL, {"after": TO_B}, 5, "which the wgmma in line 4 may still read"),
    ],
)
def test_using_registers_or_operands_of_a_pending_wgmma_is_a_race(
    case: Case, parts: dict[str, str], line: int, message: str
) -> None:
    with pytest.raises(simt.Fault, match=message) as caught:
        run(source(case, **parts), case)
    assert (caught.value.kind.name, caught.value.line) == ("RACE", line)


def test_constant_accumulators_need_a_fence_before_wgmma() -> None:
    """A constant has no line of its own, because compilers set it at the beginning of the kernel."""
    text = re.sub(r"ld\.global\.b32 (%d\d+), .*?;", r"mov.b32 \1, 0;", source(SMALL, before="// none"))
    with pytest.raises(simt.Fault, match="set before, as an accumulator is") as caught:
        run(text)
    assert (caught.value.kind.name, caught.value.line) == ("RACE", 4)


@pytest.mark.parametrize(
    "parts",
    [
        {"after": MOVE},
        {"after": f"{WAIT}\nadd.u32 %r1, %d1, 1;"},
        {"after": f"{WAIT}\nbar.sync 0;\n{TO_B}"},
        {"after": TO_A.replace("memory;", f"memory + {B_OFFSET + 1024};")},
        # Only some paths through the program lack the wait, and none of them runs.
        {"after": f"setp.eq.u32 %p2, %r2, 99;\n@%p2 bra over;\n{WAIT}\nover:\nadd.u32 %r1, %d1, 1;"},
    ],
)
def test_independent_or_awaited_uses_have_no_fault(parts: dict[str, str]) -> None:
    run(source(SMALL, **parts))


def test_a_warp_that_skips_wgmma_causes_a_deadlock() -> None:
    """The other warps wait for the missing one, as on a GPU, until the machine detects the deadlock."""
    alone = source(SMALL, before="setp.lt.u32 %p2, %r1, 96;\n@!%p2 bra over;\nwgmma.fence.sync.aligned;")
    with pytest.raises(simt.TimedOut, match="deadlock") as caught:
        run(alone.replace("ret;", "over:\nret;"))
    assert caught.value.line == 6


def test_wgmma_needs_a_multiple_of_128_threads() -> None:
    case = SMALL
    text = source(SMALL)
    a, b, _ = generate_operands(case)
    image, descriptors, registers = prepare(case, a, b)
    d = aligned((128, 4), np.float32)
    with pytest.raises(simt.Fault, match="multiple of 128 threads"):
        launch(case, text.replace("2048", "1024"), descriptors, image, registers, d, threads=64)
