"""Test the share of the wgmma that are issued while copies are in flight, which follows from the order of events."""

from __future__ import annotations

import pytest

from kernelpath.course import registry
from kernelpath.course.problem import arguments
from kernelpath.grading.instructions import check_overlap_share, overlapped_share
from kernelpath.verdict import Verdict
from warpcheck.events import Event, EventKind

KINDS = {"L": EventKind.LOAD, "v": EventKind.LAND, "M": EventKind.MULTIPLY, "S": EventKind.STORE, "w": EventKind.WAIT}


def parse_events(text: str) -> list[Event]:
    """Return the events of one block: L issues a copy, v lands it, ^ writes the copy of S, M issues a wgmma."""
    block_events = []
    for step, sign in enumerate(text):
        kind = EventKind.LAND if sign == "^" else KINDS[sign]
        barrier = "full[0]" if sign in "Lv" else ""
        block_events.append(Event(kind, step, 0, 0, 1, "", barrier, 0, 0))
    return block_events


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("", 0.0),
        ("LvMLvM", 0.0),
        ("LLvMvM", 0.5),
        ("LLvMLvMvM", 2 / 3),
        ("LvSM^", 0.0),  # a copy to global memory feeds no tensor core
        ("LSv^MwM", 0.0),
        ("LLvwMM", 1.0),
    ],
)
def test_a_copy_is_in_flight_from_its_issue_to_its_landing(text: str, share: float) -> None:
    assert overlapped_share(parse_events(text)) == pytest.approx(share)


def test_a_multicast_copy_lands_in_every_block_of_the_cluster() -> None:
    load, land = parse_events("Lv")
    second = Event(land.kind, land.step, 1, land.warp, land.line, "", land.barrier, 0, 0)
    product = Event(EventKind.MULTIPLY, 9, 0, 0, 1, "", "", 0, 0)
    assert overlapped_share([load, load, land, second, product]) == 1.0
    assert overlapped_share([load, load, land, second, land, second, product]) == 0.0


def test_a_kernel_without_overlap_fails_with_its_share() -> None:
    exercise = registry.load(registry.find("wgmma_gemm"))
    finding = check_overlap_share(exercise, parse_events("LvMLvM"))
    assert finding is not None
    assert finding.verdict is Verdict.NO_OVERLAP
    assert finding.cause == (
        f"at {arguments(exercise.largest)}: 0% of the wgmma are issued while a copy to shared memory is in flight,"
        " at least 50% have to be"
    )
    assert check_overlap_share(exercise, parse_events("LLvMvM")) is None
