"""Check exercises that report on files with negative controls: answers that need no reading of the files."""

from __future__ import annotations

from collections.abc import Iterator

from kernelpath.course.inputs import generate_inputs
from kernelpath.course.spec import Exercise
from kernelpath.course.traces import Facts
from kernelpath.grading.facts import check_facts, facts_match


def find_violations(exercise: Exercise) -> Iterator[str]:
    """Yield the facts that are the same in every case, and the cases whose own facts are rejected."""
    (tolerance,) = exercise.tolerance.values()
    inputs_of_cases = [generate_inputs(exercise, case, seed, "cpu") for seed, case in enumerate(exercise.cases)]
    facts_of_cases: list[Facts] = [exercise.reference(*inputs) for inputs in inputs_of_cases]
    for case, facts in zip(exercise.cases, facts_of_cases, strict=True):
        if finding := check_facts(exercise.entry, facts, facts, tolerance):
            yield f" {dict(case)}: its own facts are rejected: {finding.cause}"
    for name in facts_of_cases[0]:
        if all(facts_match(facts_of_cases[0][name], facts[name], tolerance) for facts in facts_of_cases):
            yield f": {name} is the same in every case; add one that varies it"
