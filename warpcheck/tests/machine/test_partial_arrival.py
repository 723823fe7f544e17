"""Test a lane that arrives at an mbarrier on behalf of its warp."""

from __future__ import annotations

import pytest

from machine.test_mbarrier import launch
from warpcheck import simt
from warpcheck.simt import FaultKind


@pytest.mark.parametrize("reverse", [False, True])
def test_an_arrival_by_one_lane_releases_the_writes_of_its_warp(reverse: bool) -> None:
    """Warp 0 fills a row and one of its lanes arrives. Warp 1 then reads the row in the opposite order."""
    body = """
        setp.ne.u32 p, t, 0;
        @!p mbarrier.init.shared.b64 [full], 1;
        bar.sync 0;
        and.b32 %r5, t, 31; shl.b32 %r6, %r5, 2; mov.u32 %r7, s; add.u32 %r7, %r7, %r6; setp.eq.u32 q, w, 1;
        @q bra wait;
        st.shared.u32 [%r7], t;
        bar.warp.sync -1;
        @!p mbarrier.arrive.shared.b64 _, [full];
        ret;
    wait:
        mbarrier.try_wait.parity.shared::cta.b64 p, [full], 0;
        @!p bra wait;
        xor.b32 %r8, %r6, 124; mov.u32 %r9, s; add.u32 %r9, %r9, %r8;
        ld.shared.u32 n, [%r9];
        cvt.u64.u32 %rd1, %r6; add.u64 %rd1, out, %rd1; st.global.u32 [%rd1], n;"""
    # If every lane arrives for itself, no __syncwarp is needed before the arrivals.
    all_lanes_arrive = body.replace("[full], 1;", "[full], 32;").replace("@!p mbarrier.arrive", "mbarrier.arrive")
    for source in (body, all_lanes_arrive, all_lanes_arrive.replace("bar.warp.sync -1;", "")):
        assert launch(source, 64, reverse=reverse) == list(range(31, -1, -1))
    message = "which thread 31 writes .*with no __syncwarp.. before another lane arrives at the mbarrier for its warp"
    with pytest.raises(simt.Fault, match=message) as caught:
        launch(body.replace("bar.warp.sync -1;", ""), 64, reverse=reverse)
    assert caught.value.kind == FaultKind.RACE
    reads_lane_0 = body.replace("xor.b32 %r8, %r6, 124;", "mov.u32 %r8, 0;").replace("bar.warp.sync -1;", "")
    # Lane 0 itself has written word 0, so this read is ordered even without __syncwarp.
    assert launch(reads_lane_0, 64, reverse=reverse) == [0] * 32
