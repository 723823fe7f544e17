"""Grade repaired kernels: run them, count what the repair changes, and compare the faults that the submission names.

The PTX machine runs the kernels also where there is a GPU, because a GPU does not see most of the faults.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kernelpath import words
from kernelpath.course.edits import CAUSES, Unreadable, count_changes, is_causes_table, split_statements
from kernelpath.course.spec import WRONG_VALUES_FAULT
from kernelpath.files import source_text
from kernelpath.grading.context import GradingContext
from kernelpath.grading.steps import run_cases
from kernelpath.verdict import Finding, Verdict
from warpcheck import errors

# The names that a submission can give to a fault.
FAULTS = (
    *sorted(kind.__name__ for kind in errors.Fault.__subclasses__()),
    errors.Deadlock.__name__,
    WRONG_VALUES_FAULT,
)

_OPEN = "TODO"


def run_broken_cases(context: GradingContext) -> Finding | None:
    """Run all cases. The kernels as they were given are not started, and the finding quotes their first fault."""
    finding = run_cases(context)
    if finding is None or finding.verdict is Verdict.COMPILE_ERROR or _has_started(context):
        return finding
    # A stub of this kind is a program that runs and fails, so "not started" cannot be seen from an exception.
    failing = next((case.result.case["kernel"] for case in context.graded if not case.result.verdict.passed), "")
    cause = f"nothing is repaired or named yet; {failing} ends as {finding.verdict.value}: {finding.cause}"
    return replace(finding, verdict=Verdict.NOT_STARTED, cause=cause)


def check_changes(context: GradingContext) -> Finding | None:
    """Return a finding where a repair changes more statements than its kernel's declaration allows.

    Outside of the kernels it changes none: another launch, or another constant, can hide the fault of every kernel.
    """
    try:
        changes = _count_changes(context)
    except Unreadable as error:
        return Finding(Verdict.TOO_MANY_CHANGES, str(error))
    repairs = context.job.exercise.repairs
    # The empty name stands for everything outside of the kernels.
    limits = {"": 0, **{name: kernel.changes for name, kernel in repairs.items()}}
    for name, limit in limits.items():
        if changes[name] > limit:
            where = f"in {name}" if name else "outside of the kernels"
            count = words.count(changes[name], "statement")
            cause = f"the repair changes {count} {where}; the limit is {limit}"
            if not name:
                cause += ", apart from #include"
            return Finding(Verdict.TOO_MANY_CHANGES, cause)
    return None


def check_diagnosis(context: GradingContext) -> Finding | None:
    """Return a finding where the submission does not name the fault of each kernel as it was given."""
    causes = _read_causes(context.job.submission)
    if causes is None:
        return Finding(Verdict.WRONG_DIAGNOSIS, f'{CAUSES} is not a table of texts: {CAUSES} = {{"kernel": "fault"}}')
    names = ", ".join(FAULTS)
    for name, kernel in context.job.exercise.repairs.items():
        cause = causes.get(name, _OPEN)
        if cause == _OPEN:
            return Finding(Verdict.WRONG_DIAGNOSIS, f"{CAUSES} names no fault for {name}; the names are {names}")
        if cause not in FAULTS:
            return Finding(Verdict.WRONG_DIAGNOSIS, f"{CAUSES} names {cause!r} for {name}, which is none of: {names}")
        if cause not in kernel.faults:
            symptom = f"{name} as it was given had a fault of another kind than {cause}; the kinds are {names}"
            return Finding(Verdict.WRONG_DIAGNOSIS, symptom)
    return None


def _has_started(context: GradingContext) -> bool:
    """Return whether the submission repairs a statement or names a fault."""
    try:
        changed = bool(_count_changes(context).total())
    except Unreadable:
        return True
    if _read_causes(context.job.item.given[-1]) is None:  # the exercise asks for no faults
        return changed
    causes = _read_causes(context.job.submission)
    return changed or causes is None or any(cause != _OPEN for cause in causes.values())


def _count_changes(context: GradingContext) -> Counter[str]:
    """Return the statements that differ from the files as they were given, by the name of the kernel.

    An #include changes nothing by itself, so it does not count.

    Raises:
        Unreadable: A file has a syntax error, or is too long.
    """
    job = context.job
    changes: Counter[str] = Counter()
    for given in job.item.given:
        submitted = source_text(job.submission.with_suffix(given.suffix))
        before, after = (
            [
                statement
                for statement in split_statements(text, given.suffix)
                if not statement.text.startswith("#include")
            ]
            for text in (given.read_text("utf-8"), submitted)
        )
        for section, count in count_changes(before, after).items():
            changes[section if section in job.exercise.repairs else ""] += count
    return changes


def _read_causes(file: Path) -> Mapping[str, str] | None:
    """Return the table of faults that a Python file has; None where it has no such table."""
    try:
        module = ast.parse(source_text(file))
        values = [node.value for node in module.body if is_causes_table(node) and node.value is not None]
        # The table is read as a literal and never executed: the grader does not run a submission's code.
        causes = ast.literal_eval(values[-1])
    except (SyntaxError, ValueError, IndexError, TypeError, RecursionError, MemoryError):
        return None
    is_table = isinstance(causes, dict) and all(isinstance(text, str) for text in (*causes, *causes.values()))
    return causes if is_table else None
