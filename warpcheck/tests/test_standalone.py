"""Test that warpcheck's tests don't need the course. ``lint-imports`` checks the same for the package."""

from __future__ import annotations

import re
from pathlib import Path

# An import of the course or its tests. It also matches inside programs that a test writes to a file.
COURSE = re.compile(r"^\s*(?:from|import) (?:kernelpath|tests|benchmarks)\b", re.MULTILINE)


def test_no_test_of_warpcheck_imports_the_course() -> None:
    files = sorted(Path(__file__).parent.rglob("*.py"))
    assert len(files) > 70
    assert [path.name for path in files if COURSE.search(path.read_text("utf-8"))] == []
