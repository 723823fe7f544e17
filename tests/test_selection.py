"""Test that each test file belongs to one class, and each test to one shard."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
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
    assert {path for path in FILES if selection.is_weekly(path)} == {TESTS.parent / file for file in selection.WEEKLY}
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


@pytest.mark.parametrize("number", range(8))
def test_a_group_runs_in_one_process(number: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A scheduler without groups would distribute some of these tests to another process."""
    base = tmp_path_factory.getbasetemp()
    process = os.environ.get("PYTEST_XDIST_WORKER", "")
    folder = (base.parent if process else base) / "processes"
    folder.mkdir(exist_ok=True)
    (folder / f"process {process}").touch()
    assert len(list(folder.iterdir())) == 1


def test_every_group_is_in_one_shard_and_no_shard_is_empty() -> None:
    groups = [selection.group_of(path, "") for path in FILES]
    assert {selection.shard_of(group, 1) for group in groups} == {1}
    assert {selection.shard_of(group, 3) for group in groups} == {1, 2, 3}


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b"])
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011, from int() as well
        selection.parse_shard(text)


def test_every_run_executes_two_notebooks() -> None:
    chosen = [path.stem for path in NOTEBOOKS if path.stem in selection.SENTINEL_NOTEBOOKS]
    assert sorted(chosen) == sorted(selection.SENTINEL_NOTEBOOKS)


def test_every_run_grades_an_exercise_of_each_kind() -> None:
    def kinds(items: Iterable[ExerciseRef]) -> set[tuple[str, ...]]:
        exercises = [(item.lane, registry.load(item)) for item in items]
        return {(lane, exercise.kind) for lane, exercise in exercises} | {
            (lane, exercise.kind, exercise.arch) for lane, exercise in exercises if exercise.kind == "kernel"
        }

    items = registry.exercises()
    chosen = [item for item in items if item.solution.stem in selection.SENTINEL_EXERCISES]
    assert len(chosen) == len(selection.SENTINEL_EXERCISES)
    assert kinds(chosen) == kinds(items)


@pytest.mark.parametrize("subject", sorted({path for paths in selection.SUBJECTS.values() for path in paths}))
def test_the_subject_of_a_weekly_file_is_there(subject: str) -> None:
    assert list(TESTS.parent.glob(f"{subject}*"))


@pytest.mark.parametrize(
    ("file", "name", "concerned"),
    [
        ("test_rejects.py", "test_without_a_gpu[w02b_matrix_add_triton/RACE_no_barrier]", True),
        ("test_notebook_runs.py", "test_runs_without_a_gpu[week02_memory]", True),
        ("test_rejects.py", "test_without_a_gpu[w03b_coalescing/RACE_no_barrier]", False),
        ("test_doctor.py", "test_a", True),  # its subject
        ("test_cards.py", "test_a", True),  # the file itself
        ("test_twins.py", "test_a", False),
        ("test_wire.py", "test_a[draw02_x]", False),
    ],
)
def test_a_test_concerns_what_has_changed(file: str, name: str, concerned: bool) -> None:
    changed = ["checks/1_architecture/w02a_name.py", "src/kernelpath/doctor.py", "tests/test_cards.py", "README.md"]
    assert selection.concerns(TESTS / file, name, changed) == concerned


def test_files_change_by_commits_edits_and_new_files(tmp_path: Path) -> None:
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
    assert selection.changed_paths(tmp_path, "main") == []
    write("checks/1_architecture/w02a_name.py", "2")
    write("notebooks/2_cuda/week25_scans.ipynb", "{}")
    changed = ["checks/1_architecture/w02a_name.py", "notebooks/2_cuda/week25_scans.ipynb"]
    assert selection.changed_paths(tmp_path, "main") == changed
    git("commit", "-am", "second")
    assert selection.changed_paths(tmp_path, "main~1") == changed
    assert selection.changed_paths(tmp_path, "main") == changed[1:]
    with pytest.raises(subprocess.CalledProcessError):
        selection.changed_paths(tmp_path, "missing")
