"""Test mbarriers with transactions, named barriers, and messages about hangs, with small kernels in PTX for sm_90a."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from machine.launching import aligned, buffer
from warpcheck import simt
from warpcheck.simt import FaultKind

HEAD = ".version 8.4\n.target sm_90a\n.address_size 64\n"
REGISTERS = """.reg .pred p, q; .reg .b32 %r<16>, t, w, n; .reg .b64 %rd<8>, out;
    ld.param.u64 out, [to]; mov.u32 t, %tid.x; shr.u32 w, t, 5;"""


def launch(body: str, threads: int, size: int = 32, directives: str = "", **options: Any) -> list[int]:
    """Return the ``size`` words that a kernel has stored at ``out``.

    ``full`` and ``empty`` are mbarriers, and ``s`` has 256 words of shared memory.
    """
    shared = ".shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty; .shared .align 16 .b32 s[256];"
    text = f"{HEAD}.visible .entry kernel(.param .u64 to) {directives} {{\n{shared}\n{REGISTERS}\n{body}\nret;\n}}"
    c = aligned(size, np.uint32)
    simt.load(text).launch(
        "kernel", grid=(1,), block=(threads,), args=[c.ctypes.data], buffers=[buffer("c", c)], **options
    )
    return [int(value) for value in c]


def test_a_phase_ends_when_neither_arrivals_nor_bytes_are_pending() -> None:
    def done(index: int, wait: str) -> str:
        return f"mbarrier.test_wait{wait}; selp.u32 n, 1, 0, p; st.global.u32 [out+{4 * index}], n;"

    token = ".shared::cta.b64 p, [full], %rd1"
    body = f"""
        mbarrier.init.shared::cta.b64 [full], 1;
        mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [full], 48;
        {done(0, token)}
        mbarrier.complete_tx.shared::cta.b64 [full], 16;
        {done(1, token)}
        mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [full], 32;
        {done(2, token)}
        {done(3, ".parity.acquire.cta.shared::cta.b64 p, [full], 0")}
        {done(4, ".parity.relaxed.cluster.shared::cta.b64 p, [full], 1")}
        {done(5, ".parity.shared::cta.b64 p, [full], -2")}
        {done(6, ".parity.shared::cta.b64 p, [full], -1")}
        mbarrier.complete_tx.shared::cta.b64 [full], 8;  // before it is expected
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [full], 8;
        {done(7, ".parity.shared::cta.b64 p, [full], 1")}
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [full];
        {done(8, ".parity.shared::cta.b64 p, [full], 1")}
        mbarrier.inval.shared::cta.b64 [full];
        mbarrier.init.shared::cta.b64 [full], 5;
        mbarrier.arrive.release.cta.shared::cta.b64 %rd1, [full], 3;
        mbarrier.arrive_drop.expect_tx.relaxed.cta.shared::cta.b64 %rd2, [full], 4;
        mbarrier.complete_tx.shared::cta.b64 [full], 4;
        mbarrier.pending_count.b64 n, %rd2; st.global.u32 [out+36], n;
        mbarrier.arrive_drop.noComplete.release.cta.shared::cta.b64 %rd1, [full], 1;
        mbarrier.arrive.shared::cta.b64 %rd1, [full];
        mbarrier.pending_count.b64 n, %rd1; st.global.u32 [out+40], n;"""
    assert launch(body, 1)[:11] == [0, 0, 1, 1, 0, 1, 0, 0, 1, 2, 3]


PIPELINE = """
    setp.ne.u32 p, t, 0;
    @p bra begun;
    mbarrier.init.shared.b64 [full], 32; mbarrier.init.shared.b64 [empty], 32;
    fence.mbarrier_init.release.cluster;
begun:
    bar.sync 0;
    mov.u32 %r0, 0; and.b32 %r5, t, 31; shl.b32 %r6, %r5, 2; mov.u32 %r7, s; add.u32 %r7, %r7, %r6;
    setp.ne.u32 q, w, 0;
    @q bra consume;
produce:
    and.b32 %r1, %r0, 1; xor.b32 %r1, %r1, 1;
ask:
    mbarrier.try_wait.parity.shared::cta.b64 p, [empty], %r1, 1000;
    @!p bra ask;
    add.u32 n, t, %r0; st.shared.u32 [%r7], n;
    mbarrier.arrive.shared::cta.b64 _, [full];
    add.u32 %r0, %r0, 1; setp.lt.u32 p, %r0, 6;
    @p bra produce;
    ret;
consume:
    xor.b32 %r8, %r6, 124; mov.u32 %r9, s; add.u32 %r9, %r9, %r8; mov.u32 %r10, 0;
next:
    and.b32 %r1, %r0, 1;
wait:
    mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [full], %r1;
    @!p bra wait;
    ld.shared.u32 n, [%r9]; add.u32 %r10, %r10, n;
    mbarrier.arrive.shared::cta.b64 _, [empty];
    add.u32 %r0, %r0, 1; setp.lt.u32 p, %r0, 6;
    @p bra next;
    cvt.u64.u32 %rd1, %r6; add.u64 %rd1, out, %rd1; st.global.u32 [%rd1], %r10;"""


@pytest.mark.parametrize("reverse", [False, True])
def test_a_pipeline_of_a_producer_and_a_consumer(reverse: bool) -> None:
    assert launch(PIPELINE, 64, reverse=reverse) == [6 * (31 - lane) + 15 for lane in range(32)]


@pytest.mark.parametrize("label", ["ask", "wait"])
def test_a_missing_wait_is_a_fault_or_a_hang(label: str) -> None:
    """try_wait may return at any time. A wait without its loop is therefore a fault in reverse order only."""
    wait = PIPELINE[PIPELINE.index(f"{label}:") : PIPELINE.index(f"@!p bra {label};")]
    for removed, reverse in ((wait, False), (wait, True), ("", True)):
        text = PIPELINE.replace(f"@!p bra {label};", "").replace(removed, "")
        with pytest.raises(
            (simt.Fault, simt.TimedOut), match=r"no barrier between|nothing has written|more often|full"
        ):
            launch(text, 64, reverse=reverse)


def test_an_arrival_does_not_acquire() -> None:
    """The second warp to arrive reads data of the first warp. Only a wait would order this read."""
    body = """
        setp.ne.u32 p, t, 0;
        @!p mbarrier.init.shared.b64 [full], 2;
        bar.sync 0;
        and.b32 %r5, t, 31; setp.ne.u32 p, %r5, 0; setp.eq.u32 q, w, 1;
        @!q st.shared.u32 [s], 7;
        @!p mbarrier.arrive.shared.b64 %rd1, [full];
        @q ld.shared.u32 n, [s];
        @q st.global.u32 [out], n;"""
    with pytest.raises(simt.Fault) as caught:
        launch(
            body.replace(
                "@!q st.shared.u32 [s], 7;", "or.pred p, p, q;\n@!p st.shared.u32 [s], 7;\nsetp.ne.u32 p, %r5, 0;"
            ),
            64,
        )
    assert caught.value.kind == FaultKind.RACE


def test_a_failed_test_wait_does_not_block() -> None:
    """The code after the failed test completes the phase.

    The same holds for try_wait, whose time limit is unspecified.
    """
    for wait in ("test_wait", "try_wait"):
        body = f"""
            mbarrier.init.shared.b64 [full], 1;
            mbarrier.{wait}.parity.shared::cta.b64 p, [full], 0;
            @!p mbarrier.arrive.shared.b64 _, [full];
            mbarrier.{wait}.parity.shared::cta.b64 q, [full], 0;
            selp.u32 n, 2, 3, p; st.global.u32 [out], n; selp.u32 n, 2, 3, q; st.global.u32 [out+4], n;"""
        assert launch(body, 1)[:2] == [3, 2]


START = """
    setp.ne.u32 p, t, 0;
    @p bra begun;
    mbarrier.init.shared.b64 [full], 1; mbarrier.init.shared.b64 [full+8], 1; mbarrier.init.shared.b64 [empty], 3;
    mbarrier.arrive.shared.b64 _, [empty];
begun:
    bar.sync 0;
    .loc 1 10 1
"""
WAIT = "wait: mbarrier.try_wait.parity.shared::cta.b64 p, [full+8], 0;\n @!p bra wait;"
HANGS = {
    "bytes that are promised twice": (
        "@!p mbarrier.arrive.expect_tx.shared.b64 _, [full+8], 64;\n.loc 1 11 1\n"
        "@!p mbarrier.expect_tx.shared.b64 [full+8], 64;\n"
        "@!p mbarrier.complete_tx.shared.b64 [full+8], 64;\n" + WAIT,
        "; line 11 promises 128 bytes, and 64 have landed: promise those of all copies, of whole boxes; "
        "warps 0 to 1 of block 0 wait in line 11 for mbarrier full[1], which is in phase 0 (pending arrivals: 0 of 1, "
        "pending bytes: 64); mbarrier empty of block 0 is in phase 0 (pending arrivals: 2 of 3, pending bytes: 0)",
        11,
    ),
    "too many bytes": (
        "@!p mbarrier.complete_tx.shared.b64 [full+8], 16;\n@!p mbarrier.arrive.shared.b64 _, [full+8];\n" + WAIT,
        "; 16 bytes have landed that were not promised: promise those of all copies, of whole boxes; warps 0 to 1 of "
        "block 0 wait in line 10 for mbarrier full[1], which is in phase 0 (pending arrivals: 0 of 1, pending bytes: "
        "-16, more have landed than were promised)",
        10,
    ),
    "too few bytes promised": (
        "@!p mbarrier.arrive.expect_tx.shared.b64 _, [full+8], 16;\n.loc 1 11 1\n"
        "@!p mbarrier.complete_tx.shared.b64 [full+8], 64;\n" + WAIT,
        "; line 10 promises 16 bytes, and 64 have landed: promise those of all copies, of whole boxes; warps 0 to 1",
        10,
    ),
    "bytes that land at another one": (
        "@!p mbarrier.arrive.expect_tx.shared.b64 _, [full+8], 64;\n"
        "@!p mbarrier.complete_tx.shared.b64 [full], 64;\n.loc 1 11 1\n" + WAIT,
        "; bytes promised at one mbarrier have landed at another: a copy has to name the one that expects them; warps",
        11,
    ),
    "a producer that waits for its first stage": (
        f"setp.eq.u32 p, w, 0; @p bra makes;\n{WAIT}\nbra.uni over;\nmakes:\n"
        "room: mbarrier.try_wait.parity.shared::cta.b64 p, [full], 0;\n@!p bra room;\nover:",
        "; nobody has arrived at any of these: whoever goes first waits for parity 1, which a new mbarrier lets pass; "
        "warp 0 of block 0 waits in line 10 for mbarrier full[0], which is in phase 0",
        10,
    ),
    "a barrier that others do not reach": (
        f"setp.eq.u32 p, w, 0; @p bra away;\n{WAIT}\naway: bar.sync 0;",
        "warp 0 of block 0 waits in line 10 at barrier 0; warp 1 of block 0 waits in line 10 for mbarrier full[1]",
        10,
    ),
    "a named barrier": (
        f"setp.eq.u32 p, w, 0; @p bra away;\n{WAIT}\naway: barrier.sync 3, 64;",
        "warp 0 of block 0 waits in line 10 at barrier 3 of 64 threads",
        10,
    ),
    "a named barrier above another line": (
        f"setp.eq.u32 p, w, 0; @p bra away;\n{WAIT}\naway: .loc 1 11 0\nbarrier.sync 3, 64;\n.loc 1 12 0\n"
        "st.global.u32 [out], t;",
        "warp 0 of block 0 waits in line 11 at barrier 3 of 64 threads",
        10,
    ),
    "registers": (
        "setmaxnreg.inc.sync.aligned.u32 96;",
        "warps 0 to 1 of block 0 wait in line 10 for registers: its threads have 64, and the block has 0 left",
        10,
    ),
}


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_is_explained(name: str) -> None:
    body, message, line = HANGS[name]
    with pytest.raises(simt.TimedOut) as caught:
        launch(START + body, 64, directives=".maxnreg 64")
    assert caught.value.line == line
    assert "a deadlock: every remaining thread waits for another one; " in caught.value.message
    assert message in caught.value.message


EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [full], 16;"
FAULTS = {
    "mbarrier.arrive.shared.b64 _, [full+8], 2;": "more often than its phase needs: it was initialized with too few",
    f"{EXPECT} {EXPECT}": "more often than its phase needs: its warp has arrived in line 10 before, and the bytes of",
    "mbarrier.init.shared.b64 [s], 0;": "initializes s[0] (byte 0 of 1024) with a count that is not from 1",
    "st.shared.b64 [s], 0; mbarrier.arrive.shared.b64 _, [s];": "uses s[0] (byte 0 of 1024), where no mbarrier is",
    "mbarrier.inval.shared.b64 [full]; mbarrier.test_wait.parity.shared.b64 p, [full], 0;": "it was invalidated",
}


@pytest.mark.parametrize("use", FAULTS)
def test_misusing_an_mbarrier_is_a_fault(use: str) -> None:
    with pytest.raises(simt.Fault) as caught:
        launch(START + use, 1)
    assert (caught.value.kind, caught.value.line) == (FaultKind.BARRIER, 10)
    assert FAULTS[use] in caught.value.message


UNINITIALIZED = (
    "mbarrier.arrive.shared.b64 _, [full];",
    EXPECT,
    "mbarrier.expect_tx.relaxed.cta.shared.b64 [full], 16;",
    "mbarrier.test_wait.parity.shared.b64 p, [full], 0;",
    "mbarrier.try_wait.parity.shared.b64 p, [full], 0;",
    "cp.async.ca.shared.global [s], [out], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [full];",
)


@pytest.mark.parametrize("use", UNINITIALIZED)
def test_using_an_mbarrier_in_a_kernel_without_any_init_is_a_fault(use: str) -> None:
    """In such a kernel, the machine keeps no records of mbarriers."""
    with pytest.raises(simt.Fault, match="nothing has initialized an mbarrier there") as caught:
        launch(use, 1)
    assert caught.value.kind == FaultKind.UNINITIALIZED


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("mbarrier.inval.shared.b64 [full];", "where no mbarrier is"),
        (
            "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [out], 16, [full];",
            "names an mbarrier that is none",
        ),
    ],
)
def test_invalidating_or_copying_to_an_mbarrier_without_any_init_is_a_fault(use: str, message: str) -> None:
    with pytest.raises(simt.Fault, match=message):
        launch(use, 1)


def test_arrivals_of_several_lanes_are_named_as_the_cause() -> None:
    with pytest.raises(simt.Fault, match=r"several lanes of a warp arrive.*\(elect one\)") as caught:
        launch(f"{START} bar.sync 0; {EXPECT}", 32)
    assert (caught.value.kind, caught.value.thread) == (FaultKind.BARRIER, (1, 0, 0))


def test_setmaxnreg_moves_registers_between_warpgroups() -> None:
    body = """
        setp.lt.u32 p, w, 4;
        @p bra consumers;
        setmaxnreg.dec.sync.aligned.u32 24;
        bra done;
    consumers:
        setmaxnreg.inc.sync.aligned.u32 104;
        @p st.global.u32 [out], 1;
    done:"""
    assert (
        launch(
            body.replace(
                "@p st.global.u32 [out], 1;",
                "mul.wide.u32 %rd1, t, 4; add.u64 %rd1, out, %rd1; st.global.u32 [%rd1], 1;",
            ),
            256,
            128,
            ".maxnreg 64",
        )
        == [1] * 128
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_named_barriers_of_producers_and_consumers(reverse: bool) -> None:
    """Each of two warps fills a row that two other warps read, with one barrier for full and one for empty.

    The fifth warp uses neither.
    """
    body = """
        and.b32 %r5, t, 63; shl.b32 %r6, %r5, 2; mov.u32 %r7, s; add.u32 %r7, %r7, %r6; xor.b32 %r8, %r6, 252;
        mov.u32 %r9, s; add.u32 %r9, %r9, %r8; mov.u32 %r0, 0; mov.u32 %r10, 0;
        setp.eq.u32 p, w, 4;
        @p ret;
        setp.gt.u32 q, w, 1;
        @q bra consume;
    produce:
        add.u32 n, t, %r0; st.shared.u32 [%r7], n;
        barrier.arrive 1, 128;
        barrier.sync 2, 128;
        add.u32 %r0, %r0, 1; setp.lt.u32 p, %r0, 3;
        @p bra produce;
        ret;
    consume:
        bar.sync 1, 128;
        ld.shared.u32 n, [%r9]; add.u32 %r10, %r10, n;
        bar.arrive 2, 128;
        add.u32 %r0, %r0, 1; setp.lt.u32 p, %r0, 3;
        @p bra consume;
        setp.ne.u32 p, %r10, 0;
        barrier.red.popc.u32 %r11, 1, 64, p;
        add.u32 %r10, %r10, %r11;
        cvt.u64.u32 %rd1, %r6; add.u64 %rd1, out, %rd1; st.global.u32 [%rd1], %r10;"""
    assert launch(body, 160, 64, reverse=reverse) == [3 * (63 - lane) + 3 + 64 for lane in range(64)]
    with pytest.raises(simt.Fault) as caught:
        launch(body.replace("barrier.sync 2, 128;", "").replace("bar.arrive 2, 128;", ""), 160, 64, reverse=reverse)
    assert caught.value.kind == FaultKind.RACE


@pytest.mark.parametrize("reverse", [False, True])
def test_reusing_a_named_barrier_with_another_thread_count_needs_order(reverse: bool) -> None:
    """The first warp arrives at barrier 1, for which the second one waits. Then each warp uses barrier 1 alone.

    The second warp knows that the phase for 64 threads is over. The first warp knows only if barrier 2 has told it.
    """
    body = """
        setp.eq.u32 p, w, 0;
        @p bra first;
        bar.sync 1, 64;
        bar.arrive 2, 64;
        bar.sync 1, 32;
        bra done;
    first:
        bar.arrive 1, 64;
        bar.sync 2, 64;
        bar.sync 3, 32;
    done:
        mul.wide.u32 %rd1, t, 4; add.u64 %rd1, out, %rd1; st.global.u32 [%rd1], t;"""
    assert launch(body, 64, 64, reverse=reverse) == list(range(64))
    reused = body.replace("bar.sync 3, 32;", "bar.sync 1, 32;")
    with pytest.raises(simt.Fault, match="barrier 1 for 32 threads while its phase for 64 threads"):
        launch(reused.replace("bar.sync 2, 64;", "").replace("bar.arrive 2, 64;", ""), 64, 64, reverse=reverse)
    ordered = body.replace("bar.sync 1, 32;\n        bra", "bra").replace("bar.sync 3, 32;", "bar.sync 1, 32;")
    assert launch(ordered, 64, 64, reverse=reverse) == list(range(64))
