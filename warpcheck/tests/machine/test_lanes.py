"""Test lanes of one warp in PTX for sm_90a: elect.sync, and lanes that wait for each other."""

from __future__ import annotations

from machine.test_mbarrier import launch


def test_elect() -> None:
    body = """
        elect.sync %r1|p, -1;
        selp.u32 n, 100, 0, p; add.u32 %r1, %r1, n;
        setp.lt.u32 q, t, 7;
        @q bra low;
        elect.sync %r2|p, 0xffffff80;
        selp.u32 n, 1000, 0, p; add.u32 %r1, %r1, n;
        elect.sync _|p, 0xffffff80;
        selp.u32 n, 10000, 0, p; add.u32 %r1, %r1, n; add.u32 %r1, %r1, %r2;
    low:
        mul.wide.u32 %rd1, t, 4; add.u64 %rd1, out, %rd1; st.global.u32 [%rd1], %r1;
        griddepcontrol.wait; griddepcontrol.launch_dependents;
        fence.proxy.async; fence.proxy.async.shared::cta; fence.proxy.async.global;
        fence.proxy.tensormap::generic.release.gpu; fence.proxy.tensormap::generic.acquire.gpu [out], 128;"""
    assert launch(body, 32) == [100] + [0] * 6 + [11007] + [7] * 24


def test_lanes_of_a_warp_wait_for_each_other() -> None:
    """Lane 0 waits for lane 1, whose arrival comes later in the program. Afterwards both lanes reconverge."""
    body = """
        setp.ne.u32 p, t, 0;
        @!p mbarrier.init.shared.b64 [full], 1;
        bar.warp.sync -1;
        @p bra other;
    wait:
        mbarrier.try_wait.parity.shared::cta.b64 q, [full], 0;
        @!q bra wait;
        bra together;
    other:
        setp.ne.u32 p, t, 1;
        @!p mbarrier.arrive.shared.b64 _, [full];
    together:
        activemask.b32 n;
        mul.wide.u32 %rd1, t, 4; add.u64 %rd1, out, %rd1; st.global.u32 [%rd1], n;"""
    assert launch(body, 32) == [0xFFFFFFFF] * 32


def test_lanes_of_a_warp_wait_for_each_other_often() -> None:
    """Many round trips between two lanes are not mistaken for a deadlock."""
    body = """
        setp.ne.u32 p, t, 0;
        @!p mbarrier.init.shared.b64 [full], 1;
        @!p mbarrier.init.shared.b64 [empty], 1;
        bar.warp.sync -1;
        mov.u32 %r0, 0; mov.u32 %r5, full; mov.u32 %r6, empty;
        @p mov.u32 %r5, empty; @p mov.u32 %r6, full;
    next:
        and.b32 %r1, %r0, 1; selp.u32 n, 1, 0, p; xor.b32 %r1, %r1, n;
    wait:
        mbarrier.try_wait.parity.shared::cta.b64 q, [%r5], %r1;
        @!q bra wait;
        mbarrier.arrive.shared.b64 _, [%r6];
        add.u32 %r0, %r0, 1; setp.lt.u32 q, %r0, 9000;
        @q bra next;
        mul.wide.u32 %rd1, t, 4; add.u64 %rd1, out, %rd1; st.global.u32 [%rd1], %r0;"""
    assert launch(body, 2)[:2] == [9000] * 2
