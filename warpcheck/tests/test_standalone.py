"""warpcheck is a distribution of its own. `lint-imports` holds it for the package, and this test for its tests."""

from __future__ import annotations

import re
from pathlib import Path

# An import of the course or its tests, also in a program that a test writes to a file.
COURSE = re.compile(r"^\s*(?:from|import) (?:kernelpath|tests|benchmarks)\b", re.MULTILINE)


def test_the_tests_of_warpcheck_import_nothing_of_the_course() -> None:
    files = sorted(Path(__file__).parent.rglob("*.py"))
    assert len(files) > 70
    assert [path.name for path in files if COURSE.search(path.read_text("utf-8"))] == []
