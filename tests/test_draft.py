"""Test the drafts of exercises: complete and valid, with every part marked as still to be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelpath import cli
from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef, Lane
from kernelpath.dev import invariants
from kernelpath.dev.draft import DraftError, draft
from kernelpath.grading import grade
from kernelpath.verdict import Verdict

LANES: tuple[Lane, ...] = ("cuda", "triton", "cute", "python")


@pytest.fixture
def course(doubling: ExerciseRef) -> Path:
    """Return a valid checkout with one exercise and a table in its README."""
    doubling.stub.write_text("def double(x):\n    raise NotImplementedError\n    return 2 * x\n")
    notebook = doubling.root / "notebooks/1_architecture/week01_threads.ipynb"
    notebook.parent.mkdir(parents=True)
    cells = [
        {"cell_type": "markdown", "id": name, "metadata": {}, "source": [f"{text}\n"]}
        for name, text in (("a", "double"), ("b", "## Further reading"))
    ]
    notebook.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    (doubling.root / "README.md").write_text("<!-- table: syllabus -->\n<!-- end -->\n")
    return doubling.root


@pytest.mark.parametrize("lane", LANES)
def test_a_draft_breaks_only_the_invariants_about_unwritten_parts(course: Path, lane: Lane) -> None:
    drafted_files = draft("sum_of_two", "vector_add", lane, root=course)
    item = registry.find("sum_of_two", course)
    assert (item.path_id, item.lane) == ("1_architecture/w01b_sum_of_two", lane)
    assert all(path.is_file() for path in drafted_files)
    for invariant in invariants.QUICK:
        findings = list(invariant(course))
        if invariant not in (invariants.nothing_is_left_to_write, invariants.no_cell_is_left_to_write):
            assert findings == [], invariant.__name__
    unwritten = [*invariants.nothing_is_left_to_write(course), *invariants.no_cell_is_left_to_write(course)]
    assert {finding.partition(":")[0].partition(",")[0] for finding in unwritten} == {
        "checks/1_architecture/w01b_sum_of_two.py",
        "checks/1_architecture/w01b_sum_of_two.md",
        "notebooks/1_architecture/week01_threads.ipynb",
        *(f"solutions/1_architecture/{path.name}" for path in item.files("solutions")),
    }
    assert all(finding.endswith("is still to be written") for finding in unwritten)
    assert len([finding for finding in unwritten if ".md:" in finding]) == 6, (
        "three hints, a question, its explanation, and the exercise's explanation"
    )
    assert grade.grade(item, item.stub, device="cpu").verdict is Verdict.NOT_STARTED
    assert list(invariants.solutions_pass(course)) == [], (
        "an unwritten solution must be reported once, not by this invariant too"
    )


def test_a_draft_is_added_to_the_notebook_of_its_week(course: Path) -> None:
    draft("sum_of_two", "vector_add", "cuda", root=course)
    notebook = json.loads((course / "notebooks/1_architecture/week01_threads.ipynb").read_text())
    sources = ["".join(cell["source"]).splitlines()[0] for cell in notebook["cells"]]
    assert sources[1:] == ["## Your turn: `sum_of_two`", 'report = notebook.check("sum_of_two")', "## Further reading"]
    assert "sum_of_two" in (course / "README.md").read_text()
    exercise = registry.load(registry.find("sum_of_two", course))
    assert exercise.problem.flops is not None
    assert exercise.flops(n=7, offset=0) == 7  # type: ignore[misc]


def test_the_week_and_its_letter_may_be_chosen(course: Path) -> None:
    draft("late", "matmul", "triton", week=11, letter="c", root=course)
    assert registry.find("late", course).path_id == "3_triton/w11c_late"
    assert (course / "notebooks/3_triton/week11_late.ipynb").is_file()
    draft("later", "matmul", "python", root=course)
    assert registry.find("later", course).path_id == "3_triton/w11d_later"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": "sum"}, r"no problem 'sum'; write course/problems/sum\.py, or name one of adam, add_rmsnorm, "),
        ({"problem": "sequences"}, r"no problem 'sequences'; .* name one of (?!.*\bsequences\b)"),
        ({"name": "Sum"}, "'Sum' is not the name of an exercise; name it like"),
        ({"name": "double"}, "exercise double already exists"),
        ({"week": 99}, "there is no week 99; give --week 0 to 24, or an elective week: 25, "),
        ({"week": -1}, "there is no week -1"),
        ({"letter": "a"}, "'a' is not a free letter of week 1; the next one is b"),
        ({"letter": "bc"}, "'bc' is not a free letter"),
    ],
)
def test_a_refused_draft_writes_nothing(course: Path, changes: dict[str, object], message: str) -> None:
    before = sorted(course.rglob("*"))
    arguments: dict[str, object] = {"name": "sum_of_two", "problem": "vector_add", "lane": "cuda", "root": course}
    with pytest.raises(DraftError, match=message):
        draft(**{**arguments, **changes})  # type: ignore[arg-type]
    assert sorted(course.rglob("*")) == before


def test_no_file_is_overwritten(course: Path) -> None:
    existing_file = course / "solutions/1_architecture/w01b_sum_of_two.cu"
    existing_file.write_text("mine")
    with pytest.raises(DraftError, match=r"w01b_sum_of_two\.cu already exists"):
        draft("sum_of_two", "vector_add", "cuda", root=course)
    assert existing_file.read_text() == "mine"
    assert not (course / "checks/1_architecture/w01b_sum_of_two.py").exists()


def test_the_command_lists_the_files_that_it_wrote(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(course)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["dev", "new", "sum_of_two", "--problem", "vector_add", "--lane", "python"])
    assert exit_.value.code == 0
    assert "wrote checks/1_architecture/w01b_sum_of_two.md\n" in capsys.readouterr().out
    with pytest.raises(SystemExit) as exit_:
        cli.main(["dev", "new", "sum_of_two", "--problem", "vector_add", "--lane", "python"])
    assert exit_.value.code == 2
    assert "choose another name" in capsys.readouterr().err


def test_dev_check_can_check_a_single_exercise(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draft("sum_of_two", "vector_add", "python", root=course)
    monkeypatch.chdir(course)

    def check_quickly(name: str) -> tuple[int, list[str]]:
        with pytest.raises(SystemExit) as exit_:
            cli.main(["dev", "check", name, "--quick"])
        return int(str(exit_.value.code)), capsys.readouterr().out.splitlines()

    status, lines = check_quickly("sum_of_two")
    assert status == 1
    assert "FAIL nothing is left to write" in lines
    assert any("w01b_sum_of_two.md" in line for line in lines)
    assert "ok   controls are rejected" in lines
    assert not any("tables are current" in line for line in lines), "tables do not belong to one exercise"
    status, lines = check_quickly("double")
    assert (status, {line[:4] for line in lines}) == (0, {"ok  "})
