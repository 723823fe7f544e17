"""Limit the device memory that a call holds besides its inputs and outputs."""

from __future__ import annotations

from kernelpath.course.problem import Case, arguments
from kernelpath.course.spec import Exercise
from kernelpath.verdict import Finding, Verdict


def check_workspace(exercise: Exercise, case: Case, workspace: int) -> Finding | None:
    """Return a finding where a call of this case held more than the exercise allows. `workspace` is its peak in
    bytes.
    """
    if exercise.workspace is None:
        return None
    compulsory = exercise.compulsory_bytes(**case)
    allowed = int(exercise.workspace * compulsory)
    if workspace <= allowed:
        return None
    symptom = f"at {arguments(case)}: {workspace:,} bytes are held beside inputs and outputs"
    return Finding(
        Verdict.TOO_MUCH_MEMORY, f"{symptom}, at most {allowed:,} are allowed ({compulsory:,} bytes are compulsory)"
    )
