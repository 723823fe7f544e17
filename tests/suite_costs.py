"""Report the time of a test run: worker-seconds by test file and the slowest tests, as tables in Markdown.

python -m tests.suite_costs [RESULTS] [--files N] [--tests N] [--write-seconds] [--budget]

RESULTS is what `pytest --junitxml` wrote, by default .venv/tests.xml of `make test`. A worker-second is a second of one
process of pytest-xdist, in which others may run. Setting up a fixture counts for the test that needed it first.

--write-seconds updates tests/submission_seconds.json, from which `direct.sentinels` knows cheap submissions, and
tests/group_seconds.json, by which the groups of tests are sorted.

--budget prints the tests that took more than BUDGET, but those in EXEMPT, and ends with status 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests import selection

ROOT = Path(__file__).resolve().parents[1]

# The worker-seconds that one test of `make test` may take, and the tests that may take more: the sentinels among the
# notebooks, and two submissions to a library, whose wheel is built and whose own tests run.
BUDGET = 10.0
EXEMPT = frozenset(
    {
        "test_runs_without_a_gpu_and_every_solution_passes[week02_memory]",
        "test_runs_without_a_gpu_and_every_solution_passes[week17_layouts]",
        "test_the_answer_passes_in_few_cases[w16d_kernel_library]",
        "test_without_a_gpu[w16d_kernel_library/WRONG_OPERATOR_tests_assert_nothing]",
    }
)


@dataclass(frozen=True)
class Test:
    """One test of a run. file: below tests/ or warpcheck/tests/, "machine/test_far.py". name: with its parameters."""

    file: str
    name: str
    seconds: float


def read(results: Path) -> list[Test]:
    """Read the tests in a file of results. Raises OSError and ElementTree.ParseError.

    An entry without a class has no cost: a module that is skipped as a whole or cannot be imported, or a run that was
    interrupted.
    """
    cases = ElementTree.parse(results).getroot().iter("testcase")
    return [
        Test(file_of(case.attrib["classname"]), case.attrib["name"], float(case.attrib["time"]))
        for case in cases
        if case.attrib.get("classname")
    ]


def file_of(classname: str) -> str:
    """Return the file of a test class as JUnit names it: machine/test_far.py for "warpcheck.tests.machine.test_far"."""
    parts = classname.removeprefix("warpcheck.").removeprefix("tests.").split(".")
    last = next(index for index, part in enumerate(parts) if part.startswith("test_"))
    return "/".join(parts[: last + 1]) + ".py"


def by_class(tests: Iterable[Test]) -> Iterator[str]:
    """Yield a table of the classes of tests/selection.py."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        seconds[selection.class_of(Path(test.file))].append(test.seconds)
    yield from table(("class", "worker-seconds", "tests"), ((name, sum(s), len(s)) for name, s in seconds.items()))


def by_file(tests: Iterable[Test], count: int) -> Iterator[str]:
    """Yield a table of the files that took most, and a last row for all others."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        seconds[test.file].append(test.seconds)
    files = sorted(seconds, key=lambda file: -sum(seconds[file]))
    rows = [(file, sum(seconds[file]), len(seconds[file])) for file in files[:count]]
    if remaining := files[count:]:
        total = sum(sum(seconds[file]) for file in remaining)
        rows.append((f"{len(remaining)} others", total, sum(len(seconds[file]) for file in remaining)))
    yield from table(("file", "worker-seconds", "tests"), rows)


def slowest(tests: Iterable[Test], count: int) -> Iterator[str]:
    """Yield a table of the tests that took most."""
    tests = sorted(tests, key=lambda test: -test.seconds)[:count]
    yield from table(("test", "seconds"), ((f"{test.file}: {test.name}", test.seconds) for test in tests))


def over_budget(tests: Iterable[Test]) -> list[Test]:
    """Return the tests that took more than BUDGET and are not in EXEMPT, the slowest first."""
    over = [test for test in tests if test.seconds > BUDGET and test.name not in EXEMPT]
    return sorted(over, key=lambda test: -test.seconds)


_SUBMISSION = re.compile(r"\[((w\d+[a-z]_\w+)/\w+)\]$")


def seconds_by_submission(tests: Iterable[Test]) -> dict[str, float]:
    """Return the worker-seconds of each planted submission, and their mean for each exercise."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        # A grading in all cases is weekly, and its time would distort that of the grading in few cases.
        if "in_all_cases" not in test.name and (match := _SUBMISSION.search(test.name)):
            for name in match.groups():
                seconds[name].append(test.seconds)
    return {name: round(statistics.mean(seconds[name]), 1) for name in seconds}


def seconds_by_group(tests: Iterable[Test]) -> dict[str, float]:
    """Return the worker-seconds of each group of tests."""
    seconds: dict[str, float] = defaultdict(float)
    for test in tests:
        seconds[selection.group_of(Path("tests", test.file), test.name)] += test.seconds
    return {group: round(total, 1) for group, total in seconds.items()}


def table(headings: Sequence[str], rows: Iterable[Sequence[str | float]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, numbers at the right and seconds with one digit."""
    yield "| " + " | ".join(headings) + " |"
    yield "| " + " | ".join("---" if place == 0 else "---:" for place in range(len(headings))) + " |"
    for row in rows:
        texts = (f"{cell:,.1f}" if isinstance(cell, float) else str(cell).replace("|", "\\|") for cell in row)
        yield "| " + " | ".join(texts) + " |"


def update(file: Path, seconds: Mapping[str, float]) -> None:
    """Update the seconds in a file with those of a run, and keep the seconds of tests that did not run."""
    all_seconds = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({**all_seconds, **seconds}, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=ROOT / ".venv" / "tests.xml")
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--tests", type=int, default=40)
    parser.add_argument("--write-seconds", action="store_true")
    parser.add_argument("--budget", action="store_true")
    options = parser.parse_args()
    tests = read(options.results)
    if options.budget:
        over = over_budget(tests)
        for test in over:
            print(f"{test.file}: {test.name} took {test.seconds:.1f} s; docs/testing.md says what to do about it")
        sys.exit(1 if over else 0)
    if options.write_seconds:
        update(selection.SECONDS, seconds_by_submission(tests))
        update(selection.GROUP_SECONDS, seconds_by_group(tests))
    print(f"{sum(test.seconds for test in tests):,.0f} worker-seconds, {len(tests):,} tests")
    for lines in (by_class(tests), by_file(tests, options.files), slowest(tests, options.tests)):
        print("", *lines, sep="\n")


if __name__ == "__main__":
    main()
