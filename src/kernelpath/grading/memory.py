"""The limit on device memory: what a call holds beside its inputs and outputs."""

from __future__ import annotations

from kernelpath.course.problem import Case, arguments
from kernelpath.course.spec import Exercise
from kernelpath.verdict import Finding, Verdict


def check_workspace(exercise: Exercise, case: Case, workspace: int) -> Finding | None:
    """workspace: bytes, at the peak of a call with this case."""
    if exercise.workspace is None:
        return None
    compulsory = exercise.compulsory_bytes(**case)
    allowed = int(exercise.workspace * compulsory)
    if workspace <= allowed:
        return None
    told = f"at {arguments(case)}: {workspace:,} bytes are held beside inputs and outputs"
    return Finding(
        Verdict.TOO_MUCH_MEMORY, f"{told}, at most {allowed:,} are allowed ({compulsory:,} bytes are compulsory)"
    )
