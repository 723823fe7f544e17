"""Where the time of a test run goes: worker-seconds by file of tests and the slowest tests, as tables in Markdown.

python -m tests.suite_costs [RESULTS] [--files N] [--tests N] [--write-seconds]

RESULTS is what `pytest --junitxml` wrote, by default .venv/tests.xml of `make test`. A worker-second is a second of one
process of pytest-xdist, in which others may run. Setting up a fixture counts for the test that needed it first.

--write-seconds updates tests/submission_seconds.json, from which `direct.sentinels` knows cheap submissions.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests import selection

ROOT = Path(__file__).resolve().parents[1]


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


def by_file(tests: Iterable[Test], most: int) -> Iterator[str]:
    """Yield a table of the files that took most, and a last row for all others."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        seconds[test.file].append(test.seconds)
    files = sorted(seconds, key=lambda file: -sum(seconds[file]))
    rows = [(file, sum(seconds[file]), len(seconds[file])) for file in files[:most]]
    if rest := files[most:]:
        total = sum(sum(seconds[file]) for file in rest)
        rows.append((f"{len(rest)} others", total, sum(len(seconds[file]) for file in rest)))
    yield from table(("file", "worker-seconds", "tests"), rows)


def slowest(tests: Iterable[Test], most: int) -> Iterator[str]:
    """Yield a table of the tests that took most."""
    tests = sorted(tests, key=lambda test: -test.seconds)[:most]
    yield from table(("test", "seconds"), ((f"{test.file}: {test.name}", test.seconds) for test in tests))


_SUBMISSION = re.compile(r"\[(w\d+[a-z]_\w+)/\w+\]$")


def seconds_by_exercise(tests: Iterable[Test]) -> dict[str, float]:
    """Return the mean worker-seconds of a planted submission to each exercise."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        if match := _SUBMISSION.search(test.name):
            seconds[match[1]].append(test.seconds)
    return {exercise: round(statistics.mean(seconds[exercise]), 1) for exercise in seconds}


def table(headings: Sequence[str], rows: Iterable[Sequence[str | float]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, numbers at the right and seconds with one digit."""
    yield "| " + " | ".join(headings) + " |"
    yield "| " + " | ".join("---" if place == 0 else "---:" for place in range(len(headings))) + " |"
    for row in rows:
        texts = (f"{cell:,.1f}" if isinstance(cell, float) else str(cell).replace("|", "\\|") for cell in row)
        yield "| " + " | ".join(texts) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=ROOT / ".venv" / "tests.xml")
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--tests", type=int, default=40)
    parser.add_argument("--write-seconds", action="store_true")
    chosen = parser.parse_args()
    tests = read(chosen.results)
    if chosen.write_seconds:
        seconds = json.loads(selection.SECONDS.read_text()) | seconds_by_exercise(tests)
        selection.SECONDS.write_text(json.dumps(seconds, indent=1, sort_keys=True) + "\n")
    print(f"{sum(test.seconds for test in tests):,.0f} worker-seconds, {len(tests):,} tests")
    for lines in (by_class(tests), by_file(tests, chosen.files), slowest(tests, chosen.tests)):
        print("", *lines, sep="\n")


if __name__ == "__main__":
    main()
