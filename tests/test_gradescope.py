"""The autograder for Gradescope, as Gradescope runs it: setup.sh once, then run_autograder on one submission each."""

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

_NUMBER, _TEXT = {"type": "number"}, {"type": "string"}
_VISIBILITY = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
_FORMAT = {"enum": ["text", "html", "simple_format", "md", "ansi"]}
# Of results.json, from https://gradescope-autograders.readthedocs.io/en/latest/specs/ and its page on leaderboards.
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
    """The folder /autograder of an image that Gradescope built, for exercises that need no compiler."""
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
    # What setup.sh would fetch is installed where the tests run: it installs the wheel alone, and finds the rest there.
    alone = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    python = Path(sys.executable).parent
    path = f"{python}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", source / "setup.sh"], env={**_environment(), **alone, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (site,) = source.glob("venv/lib/python*/site-packages")
    (site / "here.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    told = [str(source / "venv/bin/python"), "-c", "import kernelpath; print(kernelpath.__file__)"]
    used = subprocess.run(told, cwd=folder, env=_environment(), capture_output=True, text=True).stdout
    assert used.strip() == str(site / "kernelpath" / "__init__.py"), "what grades is the wheel"
    return folder


def _environment() -> dict[str, str]:
    """That of the tests, without what leads to the sources of this checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KERNELPATH"))}


def _without_a_network() -> list[str]:
    """What runs a command in a namespace without any network, where the system lets us."""
    command = ["unshare", "--map-root-user", "--net"]
    try:
        return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else []
    except OSError:
        return []


def _run(autograder: Path, submission: dict[str, str]) -> tuple[subprocess.CompletedProcess[str], Any]:
    """What run_autograder says of a submission, and the results.json that it leaves."""
    for name in ("submission", "results"):
        shutil.rmtree(autograder / name, ignore_errors=True)
        (autograder / name).mkdir()
    for name, text in submission.items():
        (autograder / "submission" / name).write_text(text)
    command = [*_without_a_network(), str(autograder / "run_autograder")]
    done = subprocess.run(command, cwd=autograder, env=_environment(), capture_output=True, text=True)
    written = autograder / "results" / "results.json"
    results = json.loads(written.read_text()) if written.exists() else None
    if results is not None:
        jsonschema.validate(results, SCHEMA)
    return done, results


def test_the_autograder_grades_right_and_wrong_submissions_and_none(autograder: Path) -> None:
    swizzle, reading = (registry.find(name, ROOT).solution for name in GRADED)
    right = swizzle.read_text()
    broken = "def swizzle(:\n"
    wrong = right.replace("^", "|")
    assert wrong != right
    name, missing = swizzle.name, f"nothing was handed in as {reading.name}"
    for submission, scores, said in (
        ({name: right, reading.name: reading.read_text()}, (1, 1), ("PASSED: ", "PASSED: ")),
        ({name: wrong}, (0, 0), ("WRONG_VALUES: ", missing)),
        (
            {name: broken, "my_reading.py": reading.read_text()},
            (0, 0),
            (f"COMPILE_ERROR: SyntaxError: invalid syntax\n{name}:1\nnext: fix {name}", missing),
        ),
    ):
        done, results = _run(autograder, submission)
        assert done.returncode == 0, done.stderr
        tests = {test["name"].partition("/")[2]: test for test in results["tests"]}
        ordered = [tests[swizzle.stem], tests[reading.stem]]
        assert tuple(test["score"] for test in ordered) == scores
        assert results["score"] == sum(scores)
        for test, beginning in zip(ordered, said, strict=True):
            assert (test["max_score"], test["status"]) == (1, "passed" if test["score"] else "failed")
            assert test["output"].startswith(beginning), test["output"]
        assert results["leaderboard"] == [{"name": "stars", "value": sum(scores), "order": "desc"}]


def test_a_grader_that_fails_gives_no_score(autograder: Path) -> None:
    """A zero would be a grade."""
    item = registry.find("swizzle", ROOT)
    declaration = autograder / "source" / "course" / item.declaration.relative_to(ROOT)
    kept = declaration.read_bytes()
    declaration.write_text('"""Broken."""\nimport nothing_of_this_name\n')
    try:
        done, results = _run(autograder, {item.solution.name: item.solution.read_text()})
    finally:
        declaration.write_bytes(kept)
    assert done.returncode != 0
    assert "nothing_of_this_name" in done.stdout + done.stderr
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
    assert run.external_attr >> 16 & 0o111, "it is executable"
    assert [name for name in names if re.search(r"solutions/|checks/[^/]+/(checkpoint|reading)", name)] == []
    assert "course/phases/5_cute/w17d_swizzle.py" in names


def test_the_leaderboard_has_the_speedup_of_what_was_timed() -> None:
    interval = Interval(1.2345678, 1.2, 1.3)
    measured = Measurement({}, 1e-6, 1e-6, None, interval, None, 1, 1, 1e-6, {}, 9, "events")
    report = Report("2_cuda/w07a_softmax", "", "", "GPU", 1, Verdict.PASSED, stars=2, measurement=measured)
    results = gradebook.gradescope_results([Grade("ada", report.exercise, "k", report)], {report.exercise: 3})
    jsonschema.validate(results, SCHEMA)
    assert results["leaderboard"][1:] == [{"name": "speedup of softmax", "value": 1.235, "order": "desc"}]


@pytest.mark.parametrize("from_environment", ["", "https://mirror.example/cpu"])
@pytest.mark.parametrize("address", ["", "https://wheels.example/cpu?a='$(touch${IFS}owned)'"])
def test_the_wheels_for_cpus_come_from_an_index_of_the_teachers(
    address: str, from_environment: str, tmp_path: Path
) -> None:
    """setup.sh with commands that only say what they were given."""
    for name in ("python3", "venv/bin/pip"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('#!/bin/sh\necho "$0 $* from $PIP_EXTRA_INDEX_URL"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "g++").symlink_to("python3")
    (tmp_path / "setup.sh").write_text(gradescope._setup(["w.whl", "a.whl"], [registry.find("swizzle", ROOT)], address))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PIP_EXTRA_INDEX_URL": from_environment}
    done = subprocess.run(
        ["bash", str(tmp_path / "setup.sh")], env=environment, capture_output=True, text=True, check=True
    )
    expected = f"venv/bin/pip install ./w.whl ./a.whl[all] from {from_environment or address}"
    assert done.stdout.splitlines()[-1] == expected
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
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
def test_bad_input_is_one_sentence(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(gradescope, "_wheel", lambda folder: (f"{folder.resolve().name}-0-py3-none-any.whl", b""))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit) as ended:
        cli.main(["dev", "gradescope", *(one.format(tmp_path) for one in arguments)])
    assert ended.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith("error: ")
    assert said in told
    assert (tmp_path / "notes.txt").read_text() == "mine"
