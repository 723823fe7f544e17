"""Test the grading of a class: which files are found, graded, cached, and graded again."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kernelpath
import warpcheck
from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.grading import grade
from kernelpath.school import classroom, cluster, gradebook, points
from kernelpath.school.gradebook import Grade
from kernelpath.school.handed_in import all_entries, submitted_items
from kernelpath.school.policy import Policy
from kernelpath.verdict import Report, Verdict

RIGHT = "def double(x):\n    return 2 * x\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a class in which `right` and `late` have correct submissions and `idle` has none."""
    folder = tmp_path / "class"
    for place in ("right", "late/deep/down"):
        (folder / place).mkdir(parents=True)
        (folder / place / "w01a_double.py").write_text(RIGHT)
    (folder / "idle").mkdir()
    return folder


def test_a_second_run_grades_only_changed_submissions(folder: Path, doubling: ExerciseRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = classroom.grade_class(folder, out, [doubling], device="cpu")
    graded_learners: list[str] = []
    original = grade.Session.__call__

    def record_call(self: grade.Session, **options: Any) -> object:
        graded_learners.append(self.job.submission.parent.name)
        return original(self, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grade.Session, "__call__", record_call)
        assert classroom.grade_class(folder, out, [doubling], device="cpu") == first
        assert graded_learners == []
        (folder / "right" / "w01a_double.py").write_text("def double(x):\n    return 3 * x\n")
        second = {row.learner: row for row in classroom.grade_class(folder, out, [doubling], device="cpu")}
    assert graded_learners == ["right"]
    assert second["right"].report is not None
    assert second["right"].report.verdict == "WRONG_VALUES"
    assert second["late"] in first


def test_a_changed_grader_invalidates_the_grades(
    folder: Path, doubling: ExerciseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (late,) = (entry for entry in all_entries(folder, [doubling]) if entry.learner == "late")
    before = classroom._grade_key(late, "cpu", 0)
    assert classroom._grade_key(late, "cpu", 0) == before
    monkeypatch.setattr(classroom, "_grader_digest", lambda: "fixed")
    assert classroom._grade_key(late, "cpu", 0) != before


@pytest.mark.parametrize(
    "source", ["kernelpath/verdict.py", "kernelpath/grading/compare.py", "warpcheck/runtime/races.py"]
)
def test_each_source_of_the_grader_changes_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    for package in (kernelpath, warpcheck):
        copy = tmp_path / package.__name__
        shutil.copytree(package.__path__[0], copy, ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.setattr(package, "__path__", [str(copy)])
    before = classroom._grader_digest.__wrapped__()
    assert classroom._grader_digest.__wrapped__() == before
    (tmp_path / source).write_text((tmp_path / source).read_text() + "#")
    assert classroom._grader_digest.__wrapped__() != before


def test_a_changed_project_file_invalidates_the_grade(folder: Path, doubling: ExerciseRef) -> None:
    part = folder / "late" / "deep" / "down" / "w01a_double" / "src" / "part.py"
    part.parent.mkdir(parents=True)
    part.write_text("TWO = 3\n")
    (late,) = (entry for entry in all_entries(folder, [doubling]) if entry.learner == "late")
    before = classroom._grade_key(late, "cpu", 0)
    assert classroom._grade_key(late, "cpu", 0) == before
    part.write_text("TWO = 2\n")
    assert classroom._grade_key(late, "cpu", 0) != before


def test_a_cluster_without_ray_says_what_to_install(
    folder: Path, doubling: ExerciseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(grade.Usage, match=r"^ray is not installed: .* -m pip install 'ray"):
        classroom.grade_class(folder, tmp_path / "out", [doubling], engine=cluster.engine_at("auto"))
    assert not (tmp_path / "out").exists()


def test_a_cluster_excludes_jobs(folder: Path, doubling: ExerciseRef, tmp_path: Path) -> None:
    with pytest.raises(grade.Usage, match="leave --jobs out"):
        classroom.grade_class(folder, tmp_path / "out", [doubling], jobs=4, engine=cluster.engine_at("auto"))


def test_an_unchanged_stub_is_not_a_submission(folder: Path, doubling: ExerciseRef, tmp_path: Path) -> None:
    """A course folder contains the stubs of all exercises, so an unchanged stub is not a submission."""
    stub = "def double(x):\n    # TODO: double x\n    raise NotImplementedError\n"
    doubling.stub.write_text(stub)
    (folder / "idle" / "w01a_double.py").write_text(stub.replace("\n", " \r\n"), newline="")
    (folder / "late" / "deep" / "down" / "w01a_double.py").write_text(stub + "# begun\n")
    graded_learners: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        original = grade.Session.__call__
        patch.setattr(
            grade.Session,
            "__call__",
            lambda self, **options: graded_learners.append(self.job.home.name) or original(self, **options),  # type: ignore[func-returns-value]
        )
        grades = classroom.grade_class(folder, tmp_path / "out", [doubling], device="cpu")
    assert graded_learners == ["late", "right"]
    assert [(row.learner, row.status) for row in grades] == [
        ("idle", "UNCHANGED_STUB"),
        ("late", "NOT_STARTED"),
        ("right", "PASSED"),
    ]
    assert "idle,1_architecture/w01a_double,UNCHANGED_STUB,0" in (tmp_path / "out" / "grades.csv").read_text()
    (idle,) = gradebook.gradescope_results(grades[:1], {doubling.path_id: 1})["tests"]
    assert idle["output"] == "w01a_double.py is the unchanged stub"
    (learner, *_) = points.score_class(grades, [], {doubling.path_id: 1}, Policy())
    assert (learner.handed_in, learner.scores[0].reason) == (0, "the unchanged stub")


def test_a_stub_with_a_changed_kernel_is_a_submission(folder: Path, doubling: ExerciseRef) -> None:
    doubling.stub.write_text("# TODO\n")
    doubling.stub.with_suffix(".cu").write_text("__global__ void k() {}\n")
    for learner, kernel in (("idle", "__global__ void k() {}\n"), ("right", "__global__ void k() { f(); }\n")):
        (folder / learner / "w01a_double.py").write_text("# TODO\n")
        (folder / learner / "w01a_double.cu").write_text(kernel)
    (folder / "late" / "deep" / "down" / "w01a_double.py").write_text("# TODO\n")
    entries = all_entries(folder, [doubling])
    assert [(entry.learner, entry.unchanged, entry.file is None) for entry in entries] == [
        ("idle", True, True),
        ("late", True, True),
        ("right", False, False),
    ]


def test_only_exercises_with_a_changed_stub_are_selected(folder: Path) -> None:
    """All learners have the complete course, and one learner has started one exercise."""
    for item in registry.exercises()[:3]:
        for learner in ("idle", "right"):
            (folder / learner / "phases" / item.phase).mkdir(parents=True, exist_ok=True)
            for path in item.files("phases"):
                shutil.copy(path, folder / learner / "phases" / item.phase)
    started_item = registry.exercises()[1]
    with (folder / "right" / "phases" / started_item.phase / started_item.stub.name).open("a") as file:
        file.write("# begun\n")
    assert submitted_items(folder) == [started_item]


def test_grades_in_an_old_format_are_ignored(folder: Path, doubling: ExerciseRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    classroom.grade_class(folder, out, [doubling], device="cpu")
    assert len(gradebook.read(out)) == 3
    text = (out / "grades.json").read_text()
    (out / "grades.json").write_text(text.replace('"stars"', '"points"', 1))
    assert gradebook.read(out) == {}


def test_a_folder_whose_name_is_not_utf8_is_graded_once(doubling: ExerciseRef, tmp_path: Path) -> None:
    (tmp_path / "class" / os.fsdecode(b"ad\xe4")).mkdir(parents=True)
    classroom.grade_class(tmp_path / "class", tmp_path / "out", [doubling], device="cpu")
    assert [saved_grade.learner for saved_grade in gradebook.read(tmp_path / "out").values()] == ["ad\udce4"]


def test_a_folder_without_learners_is_a_usage_error(tmp_path: Path, doubling: ExerciseRef) -> None:
    with pytest.raises(grade.Usage, match="a folder for each learner"):
        classroom.grade_class(tmp_path / "checks" / "1_architecture", tmp_path / "out", [doubling], device="cpu")


def test_a_link_out_of_the_learners_folder_is_not_followed(folder: Path, doubling: ExerciseRef) -> None:
    (folder / "idle" / "w01a_double.py").symlink_to(folder / "right" / "w01a_double.py")
    handed_in = {entry.learner: entry.file for entry in all_entries(folder, [doubling])}
    assert handed_in["idle"] is None
    assert handed_in["right"] is not None


def test_a_kernel_that_links_out_of_the_learners_folder_is_not_followed(folder: Path, doubling: ExerciseRef) -> None:
    (folder / "right" / "w01a_double.cu").write_text("//")
    (folder / "idle" / "w01a_double.py").write_text(RIGHT)
    (folder / "idle" / "w01a_double.cu").symlink_to(folder / "right" / "w01a_double.cu")
    handed_in = {entry.learner: entry.file for entry in all_entries(folder, [doubling])}
    assert handed_in["idle"] is None
    assert handed_in["right"] is not None


def test_the_file_below_phases_of_a_checkout_is_the_submission(folder: Path, doubling: ExerciseRef) -> None:
    checkout = folder / "idle" / "course"
    for tree in ("checks", "phases", "solutions"):
        (checkout / tree / "1_architecture").mkdir(parents=True)
        (checkout / tree / "1_architecture" / "w01a_double.py").write_text(RIGHT)
    handed_in = {entry.learner: entry.file for entry in all_entries(folder, [doubling])}
    assert handed_in["idle"] == checkout / "phases" / "1_architecture" / "w01a_double.py"


def test_a_failed_grading_is_unavailable_and_retried(
    folder: Path, doubling: ExerciseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def break_down(*_: object, **__: object) -> None:
        raise grade.Usage("the process that runs submissions did not start")

    with monkeypatch.context() as patch:
        patch.setattr(grade.Session, "__call__", break_down)
        failed_grades = {
            row.learner: row for row in classroom.grade_class(folder, tmp_path / "o", [doubling], device="cpu")
        }
    assert failed_grades["right"].report is not None
    assert (failed_grades["right"].report.verdict, failed_grades["right"].report.stars) == ("UNAVAILABLE", 0)
    assert "did not start" in failed_grades["right"].report.cause
    retried_grades = {
        row.learner: row for row in classroom.grade_class(folder, tmp_path / "o", [doubling], device="cpu")
    }
    assert retried_grades["right"].report is not None
    assert retried_grades["right"].report.verdict == "PASSED"


def test_every_learner_has_the_same_maximum_score(doubling: ExerciseRef) -> None:
    wrong = Report(doubling.path_id, "", "", "GPU", 1, Verdict.WRONG_VALUES, "3 of 4 are wrong")
    for report, status, expected_output in (
        (wrong, "failed", "WRONG_VALUES: 3 of 4 are wrong"),
        (None, "failed", "nothing was"),
    ):
        results = gradebook.gradescope_results(
            [gradebook.Grade("ada", doubling.path_id, "k", report)], {doubling.path_id: 3}
        )
        (test,) = results["tests"]
        assert (results["score"], test["max_score"], test["status"]) == (0, 3, status)
        assert test["output"].startswith(expected_output)


def test_paths_of_a_report_are_relative_to_the_learners_folder(
    folder: Path, doubling: ExerciseRef, tmp_path: Path
) -> None:
    (folder / "late/deep/down/w01a_double.py").write_text("def double(x)\n")
    grades = {row.learner: row for row in classroom.grade_class(folder, tmp_path / "o", [doubling], device="cpu")}
    report = grades["late"].report
    assert report is not None
    assert (report.submission, report.file) == ("deep/down/w01a_double.py",) * 2
    assert report.next_step == "fix deep/down/w01a_double.py, then kp check double"


def test_write_iterates_over_the_grades_a_fixed_number_of_times(tmp_path: Path) -> None:
    """Iterating over the grades once per learner would take minutes for thousands of learners."""

    class CountingList(list[Grade]):
        looks = 0

        def __iter__(self) -> Iterator[Grade]:
            self.looks += 1
            return super().__iter__()

    looks = set()
    for learners in (2, 20):
        grades = CountingList(
            Grade(f"learner{number % learners}", "1_x/w01a_double", "k", None) for number in range(40)
        )
        gradebook.write(tmp_path, grades, {"1_x/w01a_double": 3})
        looks.add(grades.looks)
        learner_results = json.loads((tmp_path / "gradescope" / "learner1.json").read_text())
        assert len(learner_results["tests"]) == 40 // learners
    assert looks == {3}


def test_names_are_escaped_in_the_table(doubling: ExerciseRef, tmp_path: Path) -> None:
    names = ["=1+2", "@sum,\nx", '"quoted"', "plain"]
    for name in names:
        (tmp_path / "class" / name).mkdir(parents=True)
    classroom.grade_class(tmp_path / "class", tmp_path / "out", [doubling], device="cpu")
    with (tmp_path / "out" / "grades.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["learner"] for row in rows} == {"'=1+2", "'@sum,\nx", '"quoted"', "plain"}
    assert {row["verdict"] for row in rows} == {"NOT_HANDED_IN"}
    assert {path.stem for path in (tmp_path / "out" / "gradescope").iterdir()} == set(names)


def grade_and_collect_reports(folder: Path, out: Path, item: ExerciseRef, **options: Any) -> dict[str, Report]:
    grades = classroom.grade_class(folder, out, [item], device="cpu", jobs=1, **options)
    return {row.learner: row.report for row in grades if row.report is not None}


def without_times(report: Report) -> Report:
    cases = tuple(replace(case, seconds=0.0) for case in report.cases)
    return replace(report, seconds=0.0, compile_seconds=0.0, cases=cases)


def test_seeds_differ_between_runs_learners_and_submissions(
    folder: Path, doubling: ExerciseRef, tmp_path: Path
) -> None:
    """Seeds differ between runs, learners, and submissions, so that a table of known answers is of no use."""
    first = grade_and_collect_reports(folder, tmp_path / "one", doubling)
    second = grade_and_collect_reports(folder, tmp_path / "two", doubling)
    (folder / "late/deep/down/w01a_double.py").write_text(f"# changed\n{RIGHT}")
    third = grade_and_collect_reports(folder, tmp_path / "one", doubling)
    seeds = [first["late"].seed, first["right"].seed, second["late"].seed, second["right"].seed, third["late"].seed]
    assert len(set(seeds)) == len(seeds)
    assert 0 not in seeds
    assert third["right"].seed == first["right"].seed


def test_the_secret_of_a_run_reproduces_it(folder: Path, doubling: ExerciseRef, tmp_path: Path) -> None:
    (folder / "late/deep/down/w01a_double.py").write_text("def double(x):\n    return 3 * x\n")
    first = grade_and_collect_reports(folder, tmp_path / "one", doubling)
    secret = gradebook.read_secret(tmp_path / "one")
    assert len(secret) == 32
    shutil.rmtree(folder / "right")
    repeated = grade_and_collect_reports(folder, tmp_path / "two", doubling, secret=secret)
    assert without_times(repeated["late"]) == without_times(first["late"])
    assert gradebook.read_secret(tmp_path / "two") == secret
    learner_results = json.loads((tmp_path / "two" / "gradescope" / "late.json").read_text())
    assert learner_results["extra_data"] == {"secret": secret}
    assert secret not in json.dumps({**learner_results, "extra_data": {}})
    assert secret not in (tmp_path / "two" / "grades.csv").read_text()


def test_an_explicit_seed_applies_to_all_learners(folder: Path, doubling: ExerciseRef, tmp_path: Path) -> None:
    reports = grade_and_collect_reports(folder, tmp_path / "out", doubling, seed=7)
    assert {report.seed for report in reports.values()} == {7}


def test_sparse_files_of_a_terabyte_are_not_read(folder: Path, doubling: ExerciseRef, tmp_path: Path) -> None:
    """Sparse files cost a learner no disk space. Each is at a path that the grader reads."""
    kernel = "w01a_double.cu"
    header = "header.cuh"
    project = "w01a_double/part.py"
    for name in ("w01a_double.py", kernel, header, project):
        file = folder / f"has {name.replace('/', ' ')}" / name
        file.parent.mkdir(parents=True)
        (file.parents[name.count("/")] / "w01a_double.py").write_text(RIGHT)
        with file.open("wb") as sparse:
            sparse.truncate(1 << 40)
    pipe = folder / "has a pipe" / header
    pipe.parent.mkdir()
    (pipe.parent / "w01a_double.py").write_text(RIGHT)
    os.mkfifo(pipe)
    reports = grade_and_collect_reports(folder, tmp_path / "out", doubling)
    assert [name for name, report in reports.items() if not report.verdict.passed] == [
        "has w01a_double part.py",
        "has w01a_double.cu",
        "has w01a_double.py",
    ]
    assert (
        reports["has w01a_double.cu"].cause
        == "w01a_double.cu has 1,099,511,627,776 bytes; at most 4,194,304 are graded"
    )


def test_too_many_files_are_refused(folder: Path, doubling: ExerciseRef, tmp_path: Path) -> None:
    for name, count, size in (("small", 1200, 1), ("sparse", 100, 4 << 20)):
        project = folder / name / "w01a_double"
        project.mkdir(parents=True)
        (project.parent / "w01a_double.py").write_text(RIGHT)
        for number in range(count):
            with (project / f"{number}.py").open("wb") as file:
                file.truncate(size)
    reports = grade_and_collect_reports(folder, tmp_path / "out", doubling)
    assert reports["small"].cause == "w01a_double has more than 1,000 files"
    assert reports["sparse"].cause == "w01a_double.py and the files next to it have more than 16 MiB"
    assert reports["right"].verdict.passed


def test_a_file_with_the_longest_name_is_graded(folder: Path, doubling: ExerciseRef, tmp_path: Path) -> None:
    for length in (243, 255):
        (folder / "right" / f"{'x' * (length - 4)}.cuh").write_text("// mine\n")
    project = folder / "late" / "deep" / "down" / "w01a_double"
    project.mkdir()
    (project / f"{'y' * 252}.py").write_text("TWO = 2\n")
    reports = grade_and_collect_reports(folder, tmp_path / "out", doubling)
    assert {name: report.verdict.value for name, report in reports.items()} == {"late": "PASSED", "right": "PASSED"}
