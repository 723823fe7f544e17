"""Test messages about deadlocks at an mbarrier that receives more or fewer arrivals than its count."""

from __future__ import annotations

import pytest

from machine.test_mbarrier import START, WAIT, launch
from warpcheck import simt

ARRIVALS = {
    "fewer threads arrive than a phase needs": (
        ".loc 1 11 1\nwait: mbarrier.try_wait.parity.shared::cta.b64 p, [empty], 0;\n @!p bra wait;",
        "; mbarrier empty has 1 of the 3 arrivals that it was initialized with; warps 0 to 1 of block 0 wait",
        9,
    ),
    "a whole warp arrives in place of one thread": (
        f"setp.eq.u32 p, w, 0;\n@p mbarrier.arrive.shared.b64 _, [full+8];\n.loc 1 11 1\n{WAIT}",
        "; mbarrier full[1] is in phase 32, far ahead of the others: it was initialized with 1 arrival a phase, and "
        "more threads arrive (all lanes of a warp, not one?); ",
        9,
    ),
}


@pytest.mark.parametrize("name", ARRIVALS)
def test_a_deadlock_names_the_mbarrier_with_a_wrong_arrival_count(name: str) -> None:
    body, message, line = ARRIVALS[name]
    with pytest.raises(simt.Deadlock) as caught:
        launch(f".loc 1 9 1\n{START}{body}", 64)
    assert f"a deadlock: every remaining thread waits for another one{message}" in caught.value.message
    assert caught.value.line == line


def test_an_mbarrier_whose_arriving_warp_is_blocked_is_not_blamed() -> None:
    """Warp 0 is blocked at a barrier of the block, so it may be the warp that has yet to arrive."""
    body = f"setp.eq.u32 p, w, 0;\n@p bra away;\n{WAIT.replace('full+8', 'empty')}\naway: bar.sync 0;"
    with pytest.raises(simt.Deadlock) as caught:
        launch(START + body, 64)
    assert "arrivals that it was initialized with" not in caught.value.message
