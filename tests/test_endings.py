"""The examples of verdicts that the pages show: each verdict has one, and the grader still says it."""

from __future__ import annotations

from pathlib import Path

from kernelpath.course import rejects
from kernelpath.dev import endings as made
from kernelpath.show.endings import endings
from kernelpath.verdict import Verdict

ROOT = Path(__file__).parents[1]


def test_every_verdict_has_an_example() -> None:
    assert list(endings(ROOT)) == list(Verdict), "python -m kernelpath.dev.endings writes them"


def test_no_example_names_a_file_that_a_learner_does_not_have() -> None:
    files = [one.where.partition(":")[0] for one in endings(ROOT).values() if one.where]
    assert [name for name in files if not (ROOT / name).is_file()] == []
    assert len(files) > len(Verdict) // 2


def test_an_example_is_what_the_grader_says_today(tmp_path: Path) -> None:
    (reject,) = (one for one in rejects.find(ROOT, "any") if one.name == "w01b_vector_add/OUT_OF_BOUNDS_no_guard")
    assert reject.name in made.PLANTED
    assert made.of_reject(reject, tmp_path) == endings(ROOT)[Verdict.OUT_OF_BOUNDS]
