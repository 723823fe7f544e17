"""Limit how far a kernel may let its tensor cores wait for copies, by the order of events on the PTX machine.

The machine carries out a bulk copy as late as possible: when no warp can go on without it. So a copy is in flight while
tensor cores multiply only if the program has issued it ahead of the wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelpath import words
from kernelpath.course.spec import Exercise
from kernelpath.verdict import Finding, Verdict
from warpcheck.events import Event, EventKind


def overlapped_share(events: Sequence[Event]) -> float:
    """Return the share of wgmma and tcgen05.mma that are issued while a copy to shared memory is in flight, or 0."""
    issued = landed = products = overlapped = 0
    last_landing: tuple[int, int, int] | None = None
    blocks: set[int] = set()
    for event in events:
        if event.kind == EventKind.LAND and event.barrier:
            # A multicast copy lands in each block of the cluster, one after another in the same step.
            landing = event.step, event.line, event.warp
            if landing != last_landing or event.block in blocks:
                landed += 1
                blocks.clear()
            blocks.add(event.block)
            last_landing = landing
            continue
        last_landing = None
        issued += event.kind == EventKind.LOAD
        if event.kind == EventKind.MULTIPLY:
            products += 1
            overlapped += issued > landed
    return overlapped / products if products else 0.0


def check_share(exercise: Exercise, events: Sequence[Event]) -> Finding | None:
    """Return a finding where fewer of them overlap with copies than the exercise requires."""
    assert exercise.overlap is not None
    share = overlapped_share(events)
    if share >= exercise.overlap:
        return None
    issued = (
        f"{words.share(share)} of the {exercise.asynchronous_mma} are issued while a copy to shared memory is in flight"
    )
    return Finding(Verdict.NO_OVERLAP, f"{issued}, at least {words.share(exercise.overlap)} have to be")
