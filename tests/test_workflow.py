"""Test the GitHub Actions workflows of this repository and the one that grades a learner's repository.

A test executes the commands of the learner's workflow: they grade a repository and write the summary.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from kernelpath import cli, packages
from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.dev.workflow import workflow
from kernelpath.school import gradebook
from kernelpath.school.gradebook import Grade, format_markdown
from kernelpath.verdict import Report, Verdict

ROOT = Path(__file__).parents[1]


def parse_steps(items: list[ExerciseRef], course: str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = yaml.safe_load(workflow(items, course))["jobs"]["grade"]["steps"]
    return steps


OURS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}
ALL = {**OURS, "of a learner": workflow([registry.find("swizzle", ROOT)], "ada/course")}


def parse_jobs(name: str) -> dict[str, dict[str, Any]]:
    parsed_jobs: dict[str, dict[str, Any]] = yaml.safe_load(OURS[name])["jobs"]
    return parsed_jobs


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("name", ALL)
def test_actions_are_pinned_by_commit_with_a_version_comment(name: str) -> None:
    uses = re.findall(r"uses: *(.*)", ALL[name])
    assert uses
    assert [action for action in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)] == []


def test_an_action_has_one_version() -> None:
    pins = set(re.findall(r"uses: *(\S+)", "\n".join(ALL.values())))
    assert len(pins) == len({pin.partition("@")[0] for pin in pins})


@pytest.mark.parametrize("name", OURS)
def test_a_job_may_read_the_repository_and_nothing_else(name: str) -> None:
    content = yaml.safe_load(OURS[name])
    assert content["permissions"] == {}
    assert [job["permissions"] for job in content["jobs"].values()] == [{"contents": "read"}] * len(content["jobs"])
    checkouts = [step for job in content["jobs"].values() for step in job["steps"] if "/checkout@" in str(step)]
    assert {step["with"]["persist-credentials"] for step in checkouts} == {False}


@pytest.mark.parametrize("name", OURS)
def test_outdated_and_hanging_runs_are_cancelled(name: str) -> None:
    content = yaml.safe_load(OURS[name])
    assert content["concurrency"]["cancel-in-progress"] is True
    assert all(job["timeout-minutes"] <= 300 for job in content["jobs"].values())


@pytest.mark.parametrize("name", OURS)
def test_the_index_of_torch_is_a_repository_variable(name: str) -> None:
    assert yaml.safe_load(OURS[name])["env"] == {"PIP_EXTRA_INDEX_URL": "${{ vars.PIP_EXTRA_INDEX_URL }}"}


def test_the_jobs_of_ci_run_everything_that_make_test_runs() -> None:
    executed_commands = [command for job in parse_jobs("ci").values() for command in commands(job)]
    shards = parse_jobs("ci")["gradings"]["strategy"]["matrix"]["shard"]
    assert {"make lint types", "make unit", f"make gradings SHARD=${{{{ matrix.shard }}}}/{len(shards)}"} <= set(
        executed_commands
    )
    assert shards == list(range(1, len(shards) + 1))


def test_the_weekly_job_tests_the_oldest_and_newest_python() -> None:
    ends = parse_jobs("weekly")["versions"]["strategy"]["matrix"]["include"]
    python_versions = packages.TRIED_VERSIONS["python"]
    assert {end["end"]: end["python"] for end in ends} == {
        "oldest": python_versions.lowest,
        "newest": python_versions.newest,
    }


@pytest.mark.parametrize(("course", "ref"), [("ada/course", ""), ("ada/course@v1.2", "v1.2")])
def test_the_declarations_come_from_the_course(course: str, ref: str) -> None:
    learner, course_, *_ = parse_steps([registry.find("swizzle", ROOT)], course)
    assert learner["with"]["path"] == "class/submission"
    assert "repository" not in learner["with"], "the default is the learner's own repository"
    assert (course_["with"]["repository"], course_["with"]["ref"]) == ("ada/course", ref)


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("swizzle", "[all]"),
        ("portability", "[all,pallas]"),
        ("cute_cpp", "[all,cutlass]"),
        ("host_program", "[all,nvcc]"),
    ],
)
def test_optional_packages_are_installed_where_an_exercise_needs_them(name: str, extras: str) -> None:
    (install,) = (
        step for step in parse_steps([registry.find(name, ROOT)], "ada/course") if step.get("name") == "install"
    )
    assert install["run"] == f"pip install ./course/warpcheck './course{extras}'"


@pytest.mark.parametrize(
    ("address", "expression"),
    [
        ("", "${{ vars.PIP_EXTRA_INDEX_URL }}"),
        ("https://wheels.example/it's", "${{ vars.PIP_EXTRA_INDEX_URL || 'https://wheels.example/it''s' }}"),
    ],
)
def test_the_wheels_for_cpus_come_from_an_index_of_the_teachers(address: str, expression: str) -> None:
    text = workflow([registry.find("swizzle", ROOT)], "ada/course", address)
    (install,) = (step for step in yaml.safe_load(text)["jobs"]["grade"]["steps"] if step.get("name") == "install")
    assert install["env"] == {"PIP_EXTRA_INDEX_URL": expression}
    assert "2 GB of memory" in text


@pytest.mark.parametrize(("change", "status", "row"), [("^", 0, "| PASSED | 1 |"), ("|", 1, "| WRONG\\_VALUES | 0 |")])
def test_the_steps_of_the_workflow_grade_a_repository(change: str, status: int, row: str, tmp_path: Path) -> None:
    item = registry.find("swizzle", ROOT)
    submission = tmp_path / "class" / "submission" / "phases" / item.phase
    submission.mkdir(parents=True)
    (submission / item.solution.name).write_text(item.solution.read_text().replace("^", change))
    (tmp_path / "course").symlink_to(ROOT)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kp").write_text(f'#!/bin/sh\nexec {sys.executable} -m kernelpath.cli "$@"\n')
    (tmp_path / "bin" / "kp").chmod(0o755)
    summary = tmp_path / "summary.md"
    paths = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    statuses = []
    for step in parse_steps([item], "ada/course"):
        if step.get("name") in ("grade", "summary"):
            # On GitHub, "../" is the parent of the folder `course`. Here `course` is a symbolic link, and a program in
            # this folder would resolve "../" to the parent of the checkout.
            command = step["run"].replace("../", f"{tmp_path}/")
            environment = {**os.environ, **paths, "GITHUB_STEP_SUMMARY": str(summary)}
            done = subprocess.run(["bash", "-ec", command], cwd=ROOT, env=environment, capture_output=True, text=True)
            statuses.append(done.returncode)
    assert statuses == [0, status], done.stderr
    assert row in summary.read_text()


def test_the_summary_escapes_markup_of_a_learner() -> None:
    cause = "x | y\n<img src=a> [a](http://b) `c`"
    report = Report("1_architecture/w01b_vector_add", "", "", "", 1, Verdict.WRONG_VALUES, cause, "a.cu", 7)
    grades = [Grade("ada", report.exercise, "k", report), Grade("bob", report.exercise, "k", None)]
    lines = format_markdown(grades).splitlines()
    assert lines[0] == "| learner | exercise | verdict | stars | cause |"
    assert "x \\| y \\<img src=a\\> \\[a\\]\\(http\\://b\\) \\`c\\` \\(a.cu\\:7\\)" in lines[2]
    assert lines[3].startswith("| bob | w01b\\_vector\\_add | NOT\\_HANDED\\_IN | 0 |")
    assert lines[-1] == "0 of 2 passed"


def test_the_next_step_is_shown_to_the_learner_and_not_to_a_teacher() -> None:
    exercise = "1_architecture/w01b_vector_add"
    wrong = "fix a.cu, then kp check vector_add"
    failed = Grade("ada", exercise, "k", Report(exercise, "", "", "", 1, Verdict.RACE, next_step=wrong))
    passed = Grade("ada", exercise, "k", Report(exercise, "", "", "", 1, Verdict.PASSED, stars=1, next_step="kp next"))
    learner_summary = format_markdown([failed, passed])
    assert learner_summary.startswith("| exercise | verdict | stars | cause | next |")
    assert "fix a.cu, then kp check vector\\_add" in learner_summary
    class_summary = format_markdown([failed, Grade("bob", exercise, "k", passed.report)])
    assert "kp check" not in class_summary
    assert "kp next" not in learner_summary + class_summary
    assert {line.count("|") for line in class_summary.splitlines() if line.startswith("|")} == {6}
    outputs = [test["output"] for test in gradebook.gradescope_results([failed, passed], {exercise: 1})["tests"]]
    assert outputs[0].endswith(f"next: {wrong}")
    assert "kp next" not in outputs[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["classroom", "99", "--course", "a/b"], "week 99 has no exercises"),
        (["classroom", "swizzle", "--course", "https://somewhere"], "is not a repository on GitHub; give --course"),
        (["classroom", "swizzle", "--course", "a/b", "--out", "{}/missing/a.yml"], "cannot write"),
        (
            ["classroom", "swizzle", "--course", "a/b", "--torch-index", "https://a:b@c/d"],
            "a password, which others",
        ),
        (["summary", "{}"], "holds no grades of this version"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as exit_error:
        cli.main(["dev", *(argument.format(tmp_path) for argument in arguments)])
    assert exit_error.value.code == 2
    error_output = " ".join(capsys.readouterr().err.split())
    assert error_output.startswith("error: ")
    assert message in error_output
