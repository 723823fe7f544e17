"""Test the autograder as Gradescope runs it: setup.sh once, then run_autograder on each submission."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from kernelpath import cli
from kernelpath.course import registry
from kernelpath.dev import gradescope
from kernelpath.school import gradebook
from kernelpath.school.gradebook import Grade
from kernelpath.verdict import Interval, Measurement, Report, Verdict

ROOT = Path(__file__).parents[1]
# Exercises of the autograder; the second reads recordings.
GRADED = ("swizzle", "read_inductor")

_NUMBER = {"type": "number"}
_TEXT = {"type": "string"}
_VISIBILITY = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
_FORMAT = {"enum": ["text", "html", "simple_format", "md", "ansi"]}
# The schema of results.json, from https://gradescope-autograders.readthedocs.io/en/latest/specs/ and the page there on
# leaderboards.
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "anyOf": [{"required": ["score"]}, {"required": ["tests"]}],
    "properties": {
        "score": {"type": "number"},
        "execution_time": {"type": "number", "minimum": 0},
        "output": {"type": "string"},
        **dict.fromkeys(("output_format", "test_output_format", "test_name_format"), _FORMAT),
        **dict.fromkeys(("visibility", "stdout_visibility"), _VISIBILITY),
        "extra_data": {"type": "object"},
        "tests": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    **dict.fromkeys(("score", "max_score"), _NUMBER),
                    **dict.fromkeys(("name", "number", "output"), _TEXT),
                    **dict.fromkeys(("name_format", "output_format"), _FORMAT),
                    "status": {"enum": ["passed", "failed"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "visibility": _VISIBILITY,
                    "extra_data": {"type": "object"},
                },
            },
        },
        "leaderboard": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "value"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string"},
                    "value": {"type": ["number", "string"]},
                    "order": {"enum": ["asc", "desc"]},
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def autograder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder like /autograder in an image built by Gradescope, for exercises that need no compiler."""
    if shutil.which("g++") is None:
        pytest.skip("setup.sh would install g++, with apt-get")
    folder = tmp_path_factory.mktemp("autograder")
    gradescope.pack([registry.find(name, ROOT) for name in GRADED], folder / "upload.zip", ROOT)
    source = folder / "source"
    with zipfile.ZipFile(folder / "upload.zip") as archive:
        archive.extractall(source)
        assert {"setup.sh", "run_autograder"} <= set(archive.namelist())
    shutil.copy(source / "run_autograder", folder)
    (folder / "run_autograder").chmod(0o755)
    # The dependencies that setup.sh would download are installed for the tests, so it installs only the wheels.
    pip_options = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    python = Path(sys.executable).parent
    path = f"{python}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", source / "setup.sh"],
        env={**_environment(), **pip_options, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    (site,) = source.glob("venv/lib/python*/site-packages")
    # The virtual environment of setup.sh has no dependencies of its own: it borrows those of the tests.
    (site / "here.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    show_package = [str(source / "venv/bin/python"), "-c", "import kernelpath; print(kernelpath.__file__)"]
    package_file = subprocess.run(show_package, cwd=folder, env=_environment(), capture_output=True, text=True).stdout
    assert package_file.strip() == str(site / "kernelpath" / "__init__.py"), (
        "the installed wheel must grade, not this checkout"
    )
    return folder


def _environment() -> dict[str, str]:
    """Return the environment of the tests without the variables that lead to the sources of this checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KERNELPATH"))}


def _isolate_network() -> list[str]:
    """Return a command prefix for a namespace without network, or an empty list if the system forbids it."""
    command = ["unshare", "--map-root-user", "--net"]
    try:
        return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else []
    except OSError:
        return []


def _run(autograder: Path, submission: dict[str, str]) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Run run_autograder on a submission. Return the finished process and the contents of results.json."""
    for name in ("submission", "results"):
        shutil.rmtree(autograder / name, ignore_errors=True)
        (autograder / name).mkdir()
    for name, text in submission.items():
        (autograder / "submission" / name).write_text(text)
    command = [*_isolate_network(), str(autograder / "run_autograder")]
    process = subprocess.run(command, cwd=autograder, env=_environment(), capture_output=True, text=True)
    results_file = autograder / "results" / "results.json"
    results = json.loads(results_file.read_text()) if results_file.exists() else None
    if results is not None:
        jsonschema.validate(results, SCHEMA)
    return process, results


def test_the_autograder_grades_right_wrong_and_missing_submissions(autograder: Path) -> None:
    swizzle, reading = (registry.find(name, ROOT).solution for name in GRADED)
    right = swizzle.read_text()
    broken = "def swizzle(:\n"
    wrong = right.replace("^", "|")
    assert wrong != right
    name = swizzle.name
    not_handed_in = f"nothing was handed in as {reading.name}"
    for submission, scores, expected_outputs in (
        ({name: right, reading.name: reading.read_text()}, (1, 1), ("PASSED: ", "PASSED: ")),
        ({name: wrong}, (0, 0), ("WRONG_VALUES: ", not_handed_in)),
        (
            {name: broken, "my_reading.py": reading.read_text()},
            (0, 0),
            (f"COMPILE_ERROR: SyntaxError: invalid syntax\n{name}:1\nnext: fix {name}", not_handed_in),
        ),
    ):
        process, results = _run(autograder, submission)
        assert process.returncode == 0, process.stderr
        tests = {test["name"].partition("/")[2]: test for test in results["tests"]}
        ordered = [tests[swizzle.stem], tests[reading.stem]]
        assert tuple(test["score"] for test in ordered) == scores
        assert results["score"] == sum(scores)
        for test, beginning in zip(ordered, expected_outputs, strict=True):
            assert (test["max_score"], test["status"]) == (1, "passed" if test["score"] else "failed")
            assert test["output"].startswith(beginning), test["output"]
        assert results["leaderboard"] == [{"name": "stars", "value": sum(scores), "order": "desc"}]


def test_a_grader_that_fails_gives_no_score(autograder: Path) -> None:
    """A score of 0 would count as a grade, so a failure of the grader must give no score."""
    item = registry.find("swizzle", ROOT)
    declaration = autograder / "source" / "course" / item.declaration.relative_to(ROOT)
    original = declaration.read_bytes()
    declaration.write_text('"""Broken."""\nimport nothing_of_this_name\n')
    try:
        process, results = _run(autograder, {item.solution.name: item.solution.read_text()})
    finally:
        declaration.write_bytes(original)
    assert process.returncode != 0
    assert "nothing_of_this_name" in process.stdout + process.stderr
    assert results is None


def test_neither_reference_kernels_nor_exams_are_uploaded(autograder: Path) -> None:
    with zipfile.ZipFile(autograder / "upload.zip") as archive:
        names = archive.namelist()
        run = archive.getinfo("run_autograder")
        wheels = [name for name in names if name.endswith(".whl")]
        assert sorted(name.partition("-")[0] for name in wheels) == ["kernelpath", "warpcheck"]
        for wheel in wheels:
            with archive.open(wheel) as file, zipfile.ZipFile(file) as inner:
                names += inner.namelist()
    assert run.external_attr >> 16 & 0o111, "run_autograder must be executable"
    assert [name for name in names if re.search(r"solutions/|checks/[^/]+/(checkpoint|reading)", name)] == []
    assert "course/phases/5_cute/w17d_swizzle.py" in names


def test_the_leaderboard_has_the_speedup_of_a_timed_submission() -> None:
    interval = Interval(1.2345678, 1.2, 1.3)
    measurement = Measurement({}, 1e-6, 1e-6, None, interval, None, 1, 1, 1e-6, {}, 9, "events")
    report = Report("2_cuda/w07a_softmax", "", "", "GPU", 1, Verdict.PASSED, stars=2, measurement=measurement)
    results = gradebook.gradescope_results([Grade("ada", report.exercise, "k", report)], {report.exercise: 3})
    jsonschema.validate(results, SCHEMA)
    assert results["leaderboard"][1:] == [{"name": "speedup of softmax", "value": 1.235, "order": "desc"}]


@pytest.mark.parametrize("from_environment", ["", "https://mirror.example/cpu"])
@pytest.mark.parametrize("address", ["", "https://wheels.example/cpu?a='$(touch${IFS}owned)'"])
def test_setup_installs_cpu_wheels_from_the_teachers_index(address: str, from_environment: str, tmp_path: Path) -> None:
    """Run setup.sh with stand-ins for python3 and pip that only print their arguments."""
    for name in ("python3", "venv/bin/pip"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('#!/bin/sh\necho "$0 $* from $PIP_EXTRA_INDEX_URL"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "g++").symlink_to("python3")
    (tmp_path / "setup.sh").write_text(gradescope._setup(["w.whl", "a.whl"], [registry.find("swizzle", ROOT)], address))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PIP_EXTRA_INDEX_URL": from_environment}
    process = subprocess.run(
        ["bash", str(tmp_path / "setup.sh")], env=environment, capture_output=True, text=True, check=True
    )
    expected = f"venv/bin/pip install ./w.whl ./a.whl[all] from {from_environment or address}"
    assert process.stdout.splitlines()[-1] == expected
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("arguments", "expected_error"),
    [
        (
            ["swizzle", "--torch-index", "https://ada:secret@wheels.example/cpu"],
            "carries a user name or a password",
        ),
        (["swizzle", "--torch-index", "wheels.example/cpu"], "which begins with https://"),
        (["swizzle", "--torch-index", "https://wheels.example/\ncpu"], "which begins with https://"),
        (["swizzle", "--torch-index", "https://[wheels"], "is not the address of an index"),
        (["99"], "week 99 has no exercises; kp list"),
        (["swizzle", "--out", "{}/notes.txt"], "exists and is not a zip"),
        (["swizzle", "--out", "{}/missing/a.zip"], "cannot write"),
    ],
)
def test_invalid_arguments_are_one_sentence(
    arguments: list[str],
    expected_error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(gradescope, "_wheel", lambda folder: (f"{folder.resolve().name}-0-py3-none-any.whl", b""))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit) as exit_:
        cli.main(["dev", "gradescope", *(argument.format(tmp_path) for argument in arguments)])
    assert exit_.value.code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert error.startswith("error: ")
    assert expected_error in error
    assert (tmp_path / "notes.txt").read_text() == "mine"
