"""Elective weeks: listed and graded like the others, and counted by no exam and no total."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from rich.console import Console

from kernelpath.cli import course as course_commands
from kernelpath.cli import record
from kernelpath.course import progress, registry
from kernelpath.course.progress import Record
from kernelpath.course.registry import ExerciseRef
from kernelpath.exam import questions
from kernelpath.show import docs, overview
from kernelpath.show.weeks import Week

CHECKOUT = Path(__file__).parents[1]
PASSED = replace(progress.EMPTY_RECORD, passed="2026-11-29", stars=1)
CORE = ("2_cuda/w05a_roofline", "2_cuda/w24a_last")
ELECTIVES = ("2_cuda/w25a_scan", "2_cuda/w25b_sort")


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ExerciseRef, ...]:
    """Return two exercises of the core course and two electives, in one phase."""
    for stem in (*CORE, *ELECTIVES):
        declaration = ExerciseRef(tmp_path, stem).declaration
        declaration.parent.mkdir(parents=True, exist_ok=True)
        declaration.write_text('"""A title."""\nEXERCISE = Exercise(baseline=text)\n')
    (tmp_path / "phases").mkdir()
    monkeypatch.setattr(registry, "root", lambda: tmp_path)
    return registry.exercises(tmp_path)


def text_of(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.strip() for line in console.file.getvalue().splitlines()]


def test_weeks_after_the_core_are_electives(items: tuple[ExerciseRef, ...]) -> None:
    assert [item.path_id for item in items if item.is_elective] == [*ELECTIVES]


def test_an_exam_excludes_electives(items: tuple[ExerciseRef, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = registry.load_checkpoint("2_cuda", CHECKOUT)
    monkeypatch.setattr(registry, "load_checkpoint", lambda phase, at: checkpoint)
    exam = questions.find_exam(2, items[0].root)
    assert [item.path_id for item in exam.items] == [*CORE]


def test_progress_counts_electives_separately(items: tuple[ExerciseRef, ...]) -> None:
    def summary(*passed: str) -> list[str]:
        console = Console(file=io.StringIO(), width=100)
        records: list[tuple[ExerciseRef, Record]] = [
            (item, PASSED if item.name in passed else progress.EMPTY_RECORD) for item in items
        ]
        overview.progress(console, records)
        return [line for line in text_of(console) if " passed" in line and not line.startswith("week")]

    assert summary("roofline") == [
        "1 of 2 passed, with 1 of 1 stars without a GPU; on a GPU these exercises give up to 3"
    ]
    assert [line.partition(",")[0] for line in summary("last", "sort")] == ["1 of 2 passed", "electives: 1 of 2 passed"]


def test_the_list_shows_electives_last_under_a_heading(items: tuple[ExerciseRef, ...]) -> None:
    console = Console(file=io.StringIO(), width=100)
    overview.syllabus(console, [(item, progress.EMPTY_RECORD) for item in items])
    names = [line.split()[1] if line[:1].isdigit() else line for line in text_of(console)[1:]]
    assert names == ["roofline", "last", "", "electives", "scan", "sort"]


@pytest.mark.parametrize(
    ("passed", "place"),
    [
        ({"roofline"}, "week 24, Python, exercise 2 of 2"),
        ({"roofline", "last"}, "week 25, Python, elective 1 of 2"),
    ],
)
def test_electives_follow_when_the_core_is_passed(
    items: tuple[ExerciseRef, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    passed: set[str],
    place: str,
) -> None:
    monkeypatch.setattr(
        record, "records", lambda: [(item, PASSED if item.name in passed else progress.EMPTY_RECORD) for item in items]
    )
    course_commands.show_next()
    assert place in capsys.readouterr().out


def test_tables_list_electives_separately(items: tuple[ExerciseRef, ...]) -> None:
    root = items[0].root
    assert [row.split("`")[1] for row in docs.syllabus(root) if "`" in row] == ["roofline", "last"]
    assert [row.split("`")[1] for row in docs.electives(root) if "`" in row] == ["scan", "sort"]


@pytest.mark.parametrize(("week", "phase"), [("08", "Phase 2 · CUDA"), ("25", "Electives")])
def test_the_sidebar_has_a_part_for_electives(week: str, phase: str) -> None:
    assert Week(Path(f"2_cuda/week{week}_x.ipynb"), nbformat.v4.new_notebook(), ()).phase == phase


def test_the_title_of_a_week_says_whether_it_is_an_elective() -> None:
    for notebook in sorted(CHECKOUT.glob("notebooks/*/week*.ipynb")):
        title = nbformat.read(notebook, as_version=4).cells[0].source.partition("\n")[0]
        is_elective = int(notebook.stem[4:6]) > registry.CORE_WEEKS
        assert title.endswith(" (elective)") is is_elective, f"{notebook.name}: {title}"
