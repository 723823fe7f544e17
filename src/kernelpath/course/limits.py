"""Describe the limits of an exercise: the paragraph of its statement that says what is counted and what is allowed.

A learner has to know every limit before the first check. `kp dev check` requires the paragraph in each stub.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from kernelpath.course.spec import Exercise

_WIDTH = 120


def describe_limits(exercise: Exercise) -> str:
    """Return the paragraph for the statement, in lines of the stub's docstring; empty without limits."""
    limits = [*_describe_each(exercise)]
    if not limits:
        return ""
    return fill(f"Limits on the largest case, with room for edges on smaller ones: {'; '.join(limits)}.", _WIDTH)


def _describe_each(exercise: Exercise) -> Iterator[str]:
    traffic = exercise.traffic
    instructions = exercise.instructions
    if traffic.sectors is not None:
        yield f"at most {traffic.sectors:g} times the sectors that the bytes of its loads and stores need"
    if traffic.bytes is not None:
        yield f"at most {traffic.bytes:g} times the bytes of inputs and outputs moved"
    if traffic.bank_conflicts is not None:
        yield f"at most {_count(traffic.bank_conflicts, 'wavefront')} per request added by bank conflicts"
    if traffic.shared is not None:
        yield f"at most {_count(traffic.shared, 'wavefront')} of shared memory per cycle of multiply-adds"
    if traffic.same_address is not None:
        yield f"at most {_count(traffic.same_address, 'lane')} of an atomic at one address on average"
    if exercise.workspace is not None:
        yield f"at most {exercise.workspace:g} times the bytes of inputs and outputs held beside them"
    if instructions.integer is not None:
        yield f"at most {instructions.integer:g} integer instructions per element"
    if exercise.launches is not None:
        yield f"at most {_count(exercise.launches, 'launch', 'launches')}"
    if traffic.asynchronous is not None:
        yield f"at least {traffic.asynchronous:.0%} of what is stored to shared memory copied by cp.async"
    if traffic.bulk is not None:
        yield f"at least {traffic.bulk:.0%} of the bytes moved by TMA"
    if instructions.access_bytes is not None:
        yield f"{instructions.access_bytes} bytes in each load and store"
    if exercise.active_lanes is not None:
        yield f"at least {exercise.active_lanes:g} active lanes in the average instruction"
    if exercise.overlap is not None:
        issued = f"{exercise.asynchronous_mma} issued while a copy of the next tiles is in flight"
        yield f"at least {exercise.overlap:.0%} of the {issued}"
    if exercise.tensor_cores:
        yield "products made by tensor cores"


def _count(number: float, noun: str, plural: str = "") -> str:
    return f"{number:g} {noun if number == 1 else plural or f'{noun}s'}"
