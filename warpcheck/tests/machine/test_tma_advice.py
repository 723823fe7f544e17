"""Test the advice in messages about the most common mistakes with TMA and mbarriers."""

from __future__ import annotations

import pytest

from machine.test_mbarrier import START, launch
from warpcheck import simt

MISTAKES = {
    "one thread elects": (
        "setp.ne.u32 p, t, 3;\n@p bra over;\nelect.sync n|q, 0xffffffff;\nover: bar.warp.sync 0xffffffff;",
        "and so do cute.gemm and cute.copy of tcgen05, so call them outside of elect_one()",
    ),
    "an mbarrier that nothing initialized": (
        "mbarrier.arrive.shared.b64 _, [s];",
        "nothing has initialized an mbarrier there: one thread has to (mbarrier_init)",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_advice_names_the_mistake(name: str) -> None:
    body, advice = MISTAKES[name]
    with pytest.raises(simt.Fault) as caught:
        launch(START + body, 32)
    assert advice in caught.value.message
    assert "a copy that brings it" not in caught.value.message
