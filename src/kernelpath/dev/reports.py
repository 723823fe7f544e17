"""Negative controls of exercises that report on files: what somebody could say without reading them."""

from __future__ import annotations

from collections.abc import Iterator

from kernelpath.course.inputs import draw_inputs
from kernelpath.course.spec import Exercise
from kernelpath.course.traces import Facts
from kernelpath.grading.facts import check_facts, facts_match


def admitted(exercise: Exercise) -> Iterator[str]:
    """The facts that are the same in every case, and the cases whose own facts are rejected."""
    (tolerance,) = exercise.tolerance.values()
    drawn = [draw_inputs(exercise, case, seed, "cpu") for seed, case in enumerate(exercise.cases)]
    found: list[Facts] = [exercise.reference(*inputs) for inputs in drawn]
    for case, facts in zip(exercise.cases, found, strict=True):
        if said := check_facts(exercise.entry, facts, facts, tolerance):
            yield f" {dict(case)}: its own facts are rejected: {said.cause}"
    for name in found[0]:
        if all(facts_match(found[0][name], facts[name], tolerance) for facts in found):
            yield f": {name} is the same in every case; add one that varies it"
