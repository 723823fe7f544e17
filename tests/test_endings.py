"""Test the examples of verdicts on the pages: every verdict has an example that agrees with the grader."""

from __future__ import annotations

from pathlib import Path

from kernelpath.show.endings import read_endings
from kernelpath.verdict import Verdict
from tests import planted, write_endings

ROOT = Path(__file__).parents[1]


def test_every_verdict_has_an_example() -> None:
    assert list(read_endings(ROOT)) == list(Verdict), (
        "add a planted submission to PLANTED in tests/write_endings.py, then run python -m tests.write_endings"
    )


def test_examples_name_only_files_of_a_learner() -> None:
    files = [example.where.partition(":")[0] for example in read_endings(ROOT).values() if example.where]
    assert [name for name in files if not (ROOT / name).is_file()] == []
    assert len(files) > len(Verdict) // 2


def test_an_example_agrees_with_the_grader(tmp_path: Path) -> None:
    reject = planted.named(ROOT, "w01b_vector_add/OUT_OF_BOUNDS_no_guard")
    assert reject.name in write_endings.PLANTED
    assert write_endings.grade_reject(reject, tmp_path) == read_endings(ROOT)[Verdict.OUT_OF_BOUNDS]
