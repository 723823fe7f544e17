"""One lane for all, and instructions of Hopper's that change nothing here: PTX for sm_90a."""

from __future__ import annotations

from tests.simt.test_mbarrier import launch


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
