"""Grade a submission through the whole grader in few of its exercise's cases.

An honest submission is correct in all cases: `make seeds` grades it in all cases every week, and every run grades the
solution of the exercise in all cases. Another program for the same exercise mainly adds other host code, which the
grader checks in every case. Two of the declared cases therefore suffice in addition to the case whose sizes the seed
determines: the largest case, to which limits on counters apply, and the smallest case with a partial tile.

A wrong submission whose fault shows only after all cases have run, such as one that exceeds a limit, is also graded in
few cases if its section has the option `graded: few`; `make weekly` grades it in all cases. This command adds the
option to the named submissions that get the same verdict in few cases:

    python -m tests.few_cases [--write] w18b_transpose_cute/TOO_MUCH_TRAFFIC_no_swizzle ...

Misaligned tensors and offsets past 2^31 take half of such a grading, because they need separate kernels. They are
included for the first honest submission to each exercise, and for submissions whose text mentions addresses or offsets.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from kernelpath.course import registry
from kernelpath.course.problem import Case
from kernelpath.course.registry import ExerciseRef
from kernelpath.course.spec import Exercise
from kernelpath.grading import grade
from kernelpath.verdict import Report
from kernelpath.work.process_clock import read_usage
from tests import planted
from tests.planted import Planted

# The option `graded` of a wrong submission that is graded in few cases, and its value.
OPTION = "graded"
FEW = "few"


def has_few_cases(exercise: Exercise) -> bool:
    """Return whether few cases suffice: each case runs the same kernels, which need a compiler and the PTX machine."""
    return exercise.is_kernel and exercise.kind != "repair"  # each case of a repair runs a different kernel


def few_cases(exercise: Exercise) -> list[Case]:
    """Return the smallest case with a size that is no power of two, and the largest case, in their order.

    Return all cases of kernels to be repaired: each kernel has cases of its own.
    """
    if exercise.repairs:
        return [*exercise.cases]
    by_size = sorted(exercise.cases, key=lambda case: exercise.compulsory_bytes(**case))
    partial = next(
        case for case in by_size if any(size & (size - 1) for size in case.values() if isinstance(size, int))
    )
    return [case for case in exercise.cases if case in (partial, exercise.largest)]


def in_few_cases(exercise: Exercise, *, addresses: bool = True) -> Exercise:
    """Return an exercise with few of its cases, and none at limits.

    addresses: whether tensors are also misaligned, and offsets also exceed 2^31, where the exercise has that.
    """
    problem = replace(exercise.problem, limits=())
    few = replace(exercise, problem=problem, cases=few_cases(exercise), limits=())
    return few if addresses else replace(few, aligned=True, any_size=False)


@cache
def with_addresses(root: Path) -> frozenset[Planted]:
    """Return the honest submissions that are graded with misaligned tensors and with offsets past 2^31, too."""
    first = {honest.exercise: honest for honest in reversed(planted.accepts(root)) if "case" not in honest.options}
    named = {honest for honest in planted.accepts(root) if _ADDRESSES.search(honest.why)}
    return frozenset(named.union(first.values()))


_ADDRESSES = re.compile(r"address|align|offset|64-bit|2\^3[12]")


def grade_in_few_cases(item: ExerciseRef, submission: Path, *, seed: int, addresses: bool) -> Report:
    """Grade a submission to an exercise with kernels on the PTX machine, in few cases and with all steps."""
    job = grade.Job.create(item, submission, device="cpu")
    with grade.Session(replace(job, exercise=in_few_cases(job.exercise, addresses=addresses))) as session:
        return session(seed=seed, brief=True)


def find_submissions(names: list[str], write: bool) -> None:
    """Print how gradings of wrong submissions in few cases end, and the processor time that they take.

    write: whether to write the option into the sections of those that get their verdict.
    """
    root = Path(__file__).parents[1]
    for submission in (planted.named(root, name) for name in names):
        item = registry.find(submission.exercise)
        if not has_few_cases(registry.load(item)):
            print(f"{submission.name}: no kernel, or kernels to be repaired")
            continue
        begun = _processor_seconds()
        with tempfile.TemporaryDirectory() as folder:
            report = grade_in_few_cases(item, submission.submission(Path(folder)), seed=1, addresses=False)
        print(f"{submission.name}: {report.verdict.value} in {_processor_seconds() - begun:.1f} s", flush=True)
        if write and report.verdict is submission.verdict:
            planted.set_option(submission, OPTION, FEW)


def _processor_seconds() -> float:
    """Return the processor time of this process and of all that it has started."""
    return sum(read_usage([os.getpid()]).processor_seconds.values())


def main() -> None:
    parser = argparse.ArgumentParser(description="Grade planted wrong submissions in few cases.")
    parser.add_argument("names", nargs="+", help="the names, such as w01b_vector_add/RACE_no_barrier")
    parser.add_argument("--write", action="store_true", help="put the option `graded: few` into the sections")
    arguments = parser.parse_args()
    find_submissions(arguments.names, arguments.write)


if __name__ == "__main__":
    main()
