"""Each file of tests is of one class, and each test is in one shard."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tests import selection
from tests.notebooks import NOTEBOOKS

TESTS = Path(__file__).parent
FOLDERS = (TESTS, TESTS.parent / "warpcheck" / "tests")
FILES = sorted(
    path for folder in FOLDERS for path in folder.rglob("test_*.py") if not {"accepts", "rejects"} & set(path.parts)
)

# Fixtures that grade exercises of the course.
GRADING_FIXTURES = {"solutions"}


def test_every_file_is_of_one_class() -> None:
    names = {path.name for path in FILES}
    assert names >= selection.NOTEBOOKS | selection.GRADINGS | selection.GROUPED_BY_ID, "a file has gone"
    assert selection.WEEKLY < selection.GRADINGS
    assert not selection.NOTEBOOKS & selection.GRADINGS
    assert {selection.class_of(path) for path in FILES} == set(selection.CLASSES)


def parameters(path: Path) -> set[str]:
    """Return the names of all parameters of a module's functions, among them the fixtures that its tests use."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    return {argument.arg for function in functions for argument in function.args.args}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS.parent)))
def test_no_unit_test_grades_the_solutions(path: Path) -> None:
    if parameters(path) & GRADING_FIXTURES:
        assert selection.class_of(path) != "unit"


@pytest.mark.parametrize(
    ("file", "name", "group"),
    [
        ("test_wire.py", "test_a", "test_wire.py"),
        ("test_wire.py", "test_a[1-2]", "test_wire.py"),
        ("machine/test_far.py", "test_a", "machine/test_far.py"),
        ("test_rejects.py", "test_a[w01b_vector_add/RACE_x.cu-1]", "test_rejects.py w01b_vector_add"),
        ("test_exercises.py", "test_a[vector_add]", "test_exercises.py vector_add"),
        ("test_notebook_runs.py", "test_a[week01_threads]", "test_notebook_runs.py week01_threads"),
    ],
)
def test_tests_that_share_what_compilers_made_are_a_group(file: str, name: str, group: str) -> None:
    assert selection.group_of(TESTS / file, name) == group


def test_every_group_is_in_one_shard_and_no_shard_is_empty() -> None:
    groups = [selection.group_of(path, "") for path in FILES]
    assert {selection.shard_of(group, 1) for group in groups} == {1}
    assert {selection.shard_of(group, 3) for group in groups} == {1, 2, 3}


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b"])
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011, from int() as well
        selection.parse_shard(text)


def test_every_run_executes_a_notebook_of_each_phase() -> None:
    chosen = [path for path in NOTEBOOKS if path.stem in selection.SENTINEL_NOTEBOOKS]
    assert len(chosen) == len(selection.SENTINEL_NOTEBOOKS)
    assert sorted(path.parent.name for path in chosen) == sorted({path.parent.name for path in NOTEBOOKS})


@pytest.mark.parametrize(
    ("name", "week"),
    [
        ("test_without_a_gpu[w04b_matmul_tiled/RACE_no_barrier]", "04"),
        ("test_runs_without_a_gpu[week25_scans]", "25"),
        ("test_the_stub_is_not_started[vector_add]", None),
        ("test_a[draw04_x]", None),
    ],
)
def test_a_test_concerns_a_week(name: str, week: str | None) -> None:
    assert selection.week_of(name) == week


def test_weeks_change_by_commits_edits_and_new_files(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    for week in ("01", "02", "03"):
        write(f"checks/1_architecture/w{week}a_name.py", "1")
    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "first")
    assert selection.changed_weeks(tmp_path, "main") == frozenset()
    write("checks/1_architecture/w02a_name.py", "2")
    write("notebooks/2_cuda/week25_scans.ipynb", "{}")
    write("src/grade.py", "")
    assert selection.changed_weeks(tmp_path, "main") == {"02", "25"}
    git("commit", "-am", "second")
    assert selection.changed_weeks(tmp_path, "main~1") == {"02", "25"}
    assert selection.changed_weeks(tmp_path, "main") == {"25"}
    with pytest.raises(subprocess.CalledProcessError):
        selection.changed_weeks(tmp_path, "missing")
