"""wgmma: every type, both majors, every swizzle, as PTX ISA manual, section 9.7.15, lays matrices out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from machine.launching import aligned
from machine.warpgroups import (
    B_AT,
    DTYPES,
    SHARED,
    Array,
    Case,
    draw,
    fragments,
    launch,
    place_bits,
    prepare,
    source,
    sums_of,
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
    ids=lambda one: (
        f"{one.kind}-{one.to}-n{one.n}-{one.a_mode}-{one.b_mode}" if isinstance(one, Case) else one * "opposite"
    ),
)
def test_products(case: Case, negated: bool) -> None:
    a, b, given = draw(case)
    image, descriptors, registers = prepare(case, a, b)
    d = aligned((128, 64 * case.n // 128), DTYPES[case.to])
    d[:] = sums_of(case, given)
    launch(case, source(case), descriptors, image, registers, d, negated=negated)
    sign = case.signs[0] * case.signs[1] * (-1 if negated else 1)
    expected = sign * (a @ b.T) + case.keep * given
    assert np.array_equal(d, sums_of(case, expected).astype(d.dtype))


def test_what_cp_async_brought_needs_no_fence() -> None:
    case = CASES[1]
    a, b, given = draw(case)
    image, descriptors, registers = prepare(case, a, b)
    d = aligned((128, 64 * case.n // 128), DTYPES[case.to])
    d[:] = sums_of(case, given)
    text = source(case).replace("ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd1];\n", "")
    text = text.replace("st.shared.v4.b32 [%r3], {%r5, %r6, %r7, %r8};", "cp.async.cg.shared.global [%r3], [%rd1], 16;")
    launch(case, text.replace("fence.proxy.async;", "cp.async.wait_all;"), descriptors, image, registers, d)
    assert np.array_equal(d, sums_of(case, a @ b.T + given).astype(d.dtype))


RECORDED = json.loads((Path(__file__).parent / "recorded_wgmma.json").read_text())["sums"]
DTYPE = {"f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32, "e4m3": np.uint8, "e5m2": np.uint8}


@pytest.mark.parametrize("kinds", RECORDED)
def test_sums_are_those_of_an_h200(kinds: str) -> None:
    """Bit for bit: 16 rows and 8 columns of numbers that differ by many powers of two."""
    a_kind, b_kind, to = kinds.split()
    case = Case(8, a_kind, to, a_mode=None, b_mode=0, b_kind=b_kind)

    def recorded(name: str, dtype: Any, rows: int) -> Array:
        return np.frombuffer(bytes.fromhex(RECORDED[kinds][name]), dtype).reshape(rows, -1)

    a, given, expected = np.zeros((64, case.depth), DTYPE[a_kind]), *(np.zeros((64, 8), DTYPES[to]) for _ in range(2))
    a[:16], given[:16], expected[:16] = (
        recorded(name, dtype, 16) for name, dtype in (("a", DTYPE[a_kind]), ("d", DTYPES[to]), ("gpu", DTYPES[to]))
    )
    image, registers, d = aligned(SHARED, np.uint8), aligned((128, 4), np.uint32), aligned((128, 4), DTYPES[to])
    descriptor = place_bits(recorded("b", DTYPE[b_kind], 8), 0, 0, B_AT, image)
    registers[:], d[:] = fragments(a), sums_of(case, given)
    launch(case, source(case), (0, descriptor), image, registers, d)
    assert np.array_equal(d, sums_of(case, expected))


SMALL = Case(8, "f16", a_mode=0, b_mode=0)
IN_REGISTERS = Case(8, "f16", a_mode=None, b_mode=0)


def run(text: str, case: Case = SMALL, change: tuple[int, int] = (0, 0)) -> simt.Launch:
    """A launch whose descriptors are changed in some bits."""
    a, b, given = draw(case)
    image, descriptors, registers = prepare(case, a, b)
    d = aligned((128, 64 * case.n // 128), DTYPES[case.to])
    d[:] = sums_of(case, given)
    changed = descriptors[0] ^ change[0], descriptors[1] ^ change[1]
    return launch(case, text, changed, image, registers, d)


def test_operands_are_counted_once_for_a_warpgroup() -> None:
    """On an H200, ncu counts for each warp its rows of A, and for one of them B."""
    line = run(source(SMALL)).lines[4]
    assert (line.wgmma_wavefronts, line.wgmma_bytes) == (4 * 4 + 2, 64 * 32 + 8 * 32)
    assert (line.shared_load_requests, line.shared_load_wavefronts) == (0, 0)


def test_operations_are_at_most_those_of_the_largest_product() -> None:
    """m64n256k32 for each wgmma, among which its fence, its commit and its wait are counted, too."""
    assert run(source(SMALL)).totals.most_tensor_operations == 4 * 2 * 64 * 256 * 32


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ((0, 0x3000), "OUT_OF_BOUNDS", "past the end of shared memory"),
        ((0x3000 << 32, 0), "OUT_OF_BOUNDS", "past the end of shared memory"),
        ((0, 1 << 60), "DESCRIPTOR", "bits are set that mean nothing"),
    ],
)
def test_a_descriptor_that_is_none(change: tuple[int, int], kind: str, says: str) -> None:
    with pytest.raises(simt.Fault, match=says) as caught:
        run(source(SMALL), change=change)
    assert (caught.value.kind.name, caught.value.line) == (kind, 4)


MOVE = "mov.b32 %r1, %d1;\nmov.b64 %rd1, {%d0, %d1};\nmov.b64 {%r2, %r3}, %rd1;"
WAIT = "wgmma.wait_group.sync.aligned 0;"
STORE = "st.shared.b32 [%r3], %r1;"
TO_A, TO_B = (f"mov.u32 %r3, memory;\nmov.u32 %r1, 0;\nadd.u32 %r3, %r3, {at};\n{STORE}" for at in (0, B_AT))


@pytest.mark.parametrize(
    ("case", "parts", "line", "says"),
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
def test_too_early(case: Case, parts: dict[str, str], line: int, says: str) -> None:
    with pytest.raises(simt.Fault, match=says) as caught:
        run(source(case, **parts), case)
    assert (caught.value.kind.name, caught.value.line) == ("RACE", line)


def test_first_wgmma_without_a_fence_behind_constants() -> None:
    """A constant has no line of its own: compilers set it at the kernel's head."""
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
        {"after": TO_A.replace("memory;", f"memory + {B_AT + 1024};")},
        # A wait that only some ways of the program lack, and none that runs
        {"after": f"setp.eq.u32 %p2, %r2, 99;\n@%p2 bra over;\n{WAIT}\nover:\nadd.u32 %r1, %d1, 1;"},
    ],
)
def test_not_too_early(parts: dict[str, str]) -> None:
    run(source(SMALL, **parts))


def test_a_warp_that_does_not_take_part() -> None:
    """The others wait for it, as on a GPU, until nothing can happen any more."""
    alone = source(SMALL, before="setp.lt.u32 %p2, %r1, 96;\n@!%p2 bra over;\nwgmma.fence.sync.aligned;")
    with pytest.raises(simt.TimedOut, match="deadlock") as caught:
        run(alone.replace("ret;", "over:\nret;"))
    assert caught.value.line == 6


def test_a_block_that_is_no_whole_warpgroup() -> None:
    case, text = SMALL, source(SMALL)
    a, b, _ = draw(case)
    image, descriptors, registers = prepare(case, a, b)
    d = aligned((128, 4), np.float32)
    with pytest.raises(simt.Fault, match="multiple of 128 threads"):
        launch(case, text.replace("2048", "1024"), descriptors, image, registers, d, threads=64)
